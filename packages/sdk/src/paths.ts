import { AshError, isRelativePath } from '@ash-ai/shared'

export const agentPath = (name: string, ...rest: string[]) => toPath('agents', name, ...rest)
export const credentialPath = (name: string) => toPath('credentials', name)
export const sessionPath = (id: string, ...rest: string[]) => toPath('sessions', id, ...rest)
export const sandboxPath = (id: string, ...rest: string[]) => toPath('sandboxes', id, ...rest)
export const templatePath = (name: string) => toPath('templates', name)

export const filePath = (sessionId: string, path: string) => sessionPath(sessionId, 'files', ...partsOf(path))
export const artifactPath = (sessionId: string, executionId: string, path: string) =>
  sessionPath(sessionId, 'executions', executionId, 'artifacts', ...partsOf(path))

function partsOf(path: string): string[] {
  if (!isRelativePath(path)) throw new AshError('path_invalid', `"${path}" is not a path inside a workspace`)
  return path.split('/')
}

function toPath(...parts: string[]): string {
  // URL parsers drop dot segments, which would turn the request into one for something else.
  const odd = parts.find((part) => part === '' || part === '.' || part === '..')
  if (odd !== undefined) throw new AshError('validation_failed', `"${odd}" is neither a name nor an id`)
  return `/api/${parts.map(encodeURIComponent).join('/')}`
}
