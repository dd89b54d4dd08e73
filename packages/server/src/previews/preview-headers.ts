import type { IncomingMessage } from 'node:http'
import { type Admission, isOwnCookie, schemeOf } from './preview-access.ts'
import { type PreviewTarget, previewOrigin } from './preview-address.ts'

/** Between two neighbours only, or said anew. */
const NOT_PASSED_ON =
  /^(host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|http2-settings|expect|x-forwarded-(for|host|proto|port))$/i

/** Headers as the program inside gets them: it is addressed as on its own machine, and sees nothing of Ash's. */
export function headersInside(
  request: IncomingMessage,
  target: PreviewTarget,
  { hasKey }: Admission,
  base: URL,
): string[] {
  const local = `localhost:${target.port}`
  const kept = passedOn(request).flatMap(([name, value]): [string, string][] => {
    if (/^authorization$/i.test(name)) return hasKey ? [] : [[name, value]]
    if (/^cookie$/i.test(name)) return withoutOwn(value).map((cookies) => [name, cookies])
    // Many check that a page asks its own server; to itself it is on localhost.
    if (/^origin$/i.test(name)) return [[name, isOwnOrigin(value, target, base) ? `http://${local}` : value]]
    return [[name, value]]
  })
  return ['host', local, ...kept.flat(), ...framing(request), ...forwarded(request)]
}

/** Headers as the client gets them. */
export function headersOutside(incoming: IncomingMessage, { port }: PreviewTarget): string[] {
  const own = new RegExp(`^http://(?:localhost|127\\.0\\.0\\.1|\\[::1\\]):${port}(?=[/?#]|$)`, 'i')
  return passedOn(incoming).flatMap(([name, value]) => {
    if (/^location$/i.test(name)) return [name, value.replace(own, '') || '/']
    if (/^set-cookie$/i.test(name) && isOwnCookie(value.split('=', 1)[0]?.trim() ?? '')) return []
    return [name, value]
  })
}

function passedOn({ rawHeaders, headers }: IncomingMessage): [string, string][] {
  const listed = (headers.connection ?? '').toLowerCase().split(/[\s,]+/)
  const pairs: [string, string][] = []
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const [name = '', value = ''] = rawHeaders.slice(index, index + 2)
    if (!NOT_PASSED_ON.test(name) && !listed.includes(name.toLowerCase())) pairs.push([name, value])
  }
  return pairs
}

function withoutOwn(value: string): string[] {
  const kept = value.split(/; */).filter((pair) => !isOwnCookie(pair.split('=', 1)[0]?.trim() ?? ''))
  return kept.length === 0 ? [] : [kept.join('; ')]
}

const isOwnOrigin = (origin: string, target: PreviewTarget, base: URL) =>
  URL.parse(origin)?.hostname === URL.parse(previewOrigin(base, target))?.hostname

/** A length is passed on with the other headers. */
const framing = ({ headers }: IncomingMessage) =>
  headers['transfer-encoding'] === undefined ? [] : ['transfer-encoding', 'chunked']

function forwarded(request: IncomingMessage): string[] {
  const { headers, socket } = request
  const before = headers['x-forwarded-for']
  const client = socket.remoteAddress ?? ''
  return [
    ...['x-forwarded-for', before === undefined ? client : `${before}, ${client}`],
    ...['x-forwarded-host', headers.host ?? ''],
    ...['x-forwarded-proto', schemeOf(request)],
  ]
}
