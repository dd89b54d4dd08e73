import type { IncomingHttpHeaders } from 'node:http'
import { AshError } from '@ash-ai/shared'

/** Whether only programs of this machine reach who listens there. */
export const isLoopback = (host: string) => /^(localhost|127(\.\d{1,3}){3}|::1)$/i.test(host)

const LOOPBACK_HOST = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i

/**
 * Throws unless no web page can have sent the request. A page says where it comes from, and one whose name was made to
 * point here names itself as the host. A page of this machine on another port is foreign too: a preview is one.
 */
export function assertNoWebPage(headers: IncomingHttpHeaders): void {
  const { host = '', origin, 'sec-fetch-site': site } = headers
  if (!LOOPBACK_HOST.test(host)) throw refused(`the host "${host.slice(0, 200)}"`)
  if (origin !== undefined && origin !== `http://${host}`) throw refused(`"${origin.slice(0, 200)}"`)
  // For loopback browsers say this even where they leave the origin out, as for an image.
  if (site !== undefined && site !== 'none' && site !== 'same-origin') throw refused('a page of another site')
  const relayed = RELAYED.find((name) => headers[name] !== undefined)
  if (relayed !== undefined) throw refused(`somebody else, as "${relayed}" says`)
}

/** A proxy may come from anywhere. Not each one says so: behind one there have to be keys. */
const RELAYED = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via']

const refused = (from: string) =>
  new AshError(
    'forbidden',
    `Without a key this server answers programs of its own machine, by http://localhost or 127.0.0.1, and not ` +
      `requests for or from ${from}. Send the header "Authorization: Bearer <key>".`,
  )
