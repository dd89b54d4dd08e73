import type { IncomingMessage, ServerResponse } from 'node:http'
import { ERRORS, type ErrorCode, isAshError } from '@ash-ai/shared'
import type { PreviewTarget } from './preview-address.ts'

/** Why a preview is not shown, and what to do about it. */
export class PreviewRefusal extends Error {
  readonly status: number
  readonly code: string
  readonly hint: string

  constructor(status: number, code: string, message: string, hint: string) {
    super(message)
    this.status = status
    this.code = code
    this.hint = hint
  }
}

export const needsLink = () =>
  new PreviewRefusal(
    401,
    'unauthorized',
    'This preview needs a link',
    'Make one with "ash preview <session> <port>", or send the header "Authorization: Bearer <key>".',
  )

export const nothingListens = ({ port }: PreviewTarget) =>
  new PreviewRefusal(
    502,
    'port_closed',
    `Nothing listens on port ${port}`,
    `Start a server in the session that listens on port ${port} of localhost, then load this page again. "ash ports <session>" lists what listens.`,
  )

export const isAsleep = (sessionId: string, status: string) =>
  new PreviewRefusal(
    503,
    'session_paused',
    status === 'paused' ? 'The session is paused' : 'The session has no sandbox at the moment',
    `Resume it with "ash session resume ${sessionId}", or make a link with "--wake".`,
  )

/** What the API says of these with another status, since there it is about the call. */
const STATUS: Partial<Record<ErrorCode, number>> = { session_ended: 410, session_paused: 503 }

/** Undefined for what only the log may tell. */
function known(error: unknown): PreviewRefusal | undefined {
  if (error instanceof PreviewRefusal) return error
  if (!isAshError(error) || error.code === 'internal_error') return undefined
  const { summary } = ERRORS[error.code]
  return new PreviewRefusal(STATUS[error.code] ?? error.statusCode, error.code, error.message, summary)
}

/** Answers with a page for people, or JSON for programs. Returns what was not foreseen. */
export function refuse(request: IncomingMessage, response: ServerResponse, error: unknown): unknown {
  const refusal = known(error)
  const { status, code, message, hint } =
    refusal ?? new PreviewRefusal(500, 'internal_error', 'A fault in Ash', 'The log of the server has it.')
  if (response.headersSent) response.destroy()
  else {
    const isPage = (request.headers.accept ?? '').includes('text/html')
    response.writeHead(status, {
      'content-type': isPage ? 'text/html; charset=utf-8' : 'application/json; charset=utf-8',
      'cache-control': 'no-store',
      'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors *",
      'x-content-type-options': 'nosniff',
      connection: 'close',
    })
    const body = isPage
      ? page(status, message, hint)
      : JSON.stringify({ error: message, code, statusCode: status, hint })
    response.end(request.method === 'HEAD' ? undefined : body)
  }
  return refusal ? undefined : error
}

const page = (status: number, title: string, hint: string) => `<!doctype html>
<meta charset="utf-8"><title>${escapeHtml(title)}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh auto;padding:0 1em}</style>
<h1>${escapeHtml(title)}</h1><p>${escapeHtml(hint)}</p><p><small>Ash preview, ${status}</small></p>
`

const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
