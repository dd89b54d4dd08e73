import { TOKEN_PARAM } from '../../previews/preview-access.ts'
import { previewOrigin } from '../../previews/preview-address.ts'
import { signPreview } from '../../previews/preview-links.ts'
import type { PreviewServer } from '../../previews/preview-server.ts'

/** The dialect knows one address of a sandbox; with us each port has one. */
export const DEFAULT_URL_PORT = 8000
const VALID_MS = 3_600_000

/** A link to what a port inside serves, good for an hour; null where this server has no previews. */
export function sandboxUrl(
  previews: Pick<PreviewServer, 'base' | 'linkKey'> | undefined,
  { tenantId, sessionId, port = DEFAULT_URL_PORT }: { tenantId: string; sessionId: string; port?: number },
): string | null {
  if (!previews) return null
  const claims = { tenantId, sessionId, port, mayWake: false, expiresAtMs: Date.now() + VALID_MS }
  const token = signPreview(previews.linkKey, claims)
  return `${previewOrigin(previews.base, claims)}/?${TOKEN_PARAM}=${token}`
}
