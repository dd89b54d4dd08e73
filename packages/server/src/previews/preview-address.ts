/** What a preview shows: a port inside the sandbox of a session. */
export interface PreviewTarget {
  sessionId: string
  port: number
}

const MAX_PORT = 65_535
const LABEL = /^([1-9]\d{0,4})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(.+)$/

/** Each port of each session is an origin of its own below `base`: what runs there shares nothing with others. */
export function previewOrigin(base: URL, { sessionId, port }: PreviewTarget): string {
  return `${base.protocol}//${port}-${sessionId}.${base.host}`
}

/** What a Host header asks for; undefined where it names no preview below `base`. */
export function parsePreviewHost(base: URL, host: string | undefined): PreviewTarget | undefined {
  const name = host?.toLowerCase().replace(/:\d{1,5}$/, '')
  const [, digits, sessionId, parent] = LABEL.exec(name ?? '') ?? []
  if (sessionId === undefined || parent !== base.hostname || Number(digits) > MAX_PORT) return undefined
  return { sessionId, port: Number(digits) }
}
