import { constants } from 'node:fs'
import { open, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { type FileInput, MAX_AGENT_FILES, MAX_JSON_BODY_BYTES } from '@ash-ai/sdk'
import { CliError, EXIT } from './failure.ts'

export interface AgentFolder {
  files: FileInput[]
  bytes: number
  /** From `.env` and `.env.local` in the folder, the latter winning. */
  env: Record<string, string>
  /** What was left out and why, a line each. */
  skipped: string[]
}

const SKIPPED_NAMES = new Set(['.git', 'node_modules', '.DS_Store'])
const ENV_NAMES = ['.env', '.env.local']
/** Base64 makes four characters of three bytes; the rest is for names. */
const MAX_UPLOAD_BYTES = Math.floor(MAX_JSON_BODY_BYTES * 0.74)

/** Reads an agent folder as it is deployed. Links are not followed: they could name anything on this machine. */
export async function readAgentFolder(dir: string): Promise<AgentFolder> {
  const folder: AgentFolder = { files: [], bytes: 0, env: await readEnv(dir), skipped: [] }
  await addEntries(folder, dir, '')
  if (!folder.files.some(({ path }) => path === 'CLAUDE.md')) {
    const next = `Write what the agent is and does into ${join(dir, 'CLAUDE.md')}, then deploy again`
    throw new CliError(EXIT.failed, `${dir} has no CLAUDE.md, so it is not an agent`, next)
  }
  return folder
}

/** A name an agent may have, made from a folder's. */
export function toAgentName(folderName: string): string {
  return folderName
    .replace(/[^A-Za-z0-9_-]+/g, '-')
    .replace(/^[-_]+|-+$/g, '')
    .slice(0, 128)
}

async function addEntries(folder: AgentFolder, dir: string, prefix: string): Promise<void> {
  const entries = await readdir(join(dir, prefix), { withFileTypes: true })
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = `${prefix}${entry.name}`
    if (SKIPPED_NAMES.has(entry.name)) continue
    if (ENV_NAMES.includes(entry.name)) folder.skipped.push(`${path}: not uploaded, it may hold secrets`)
    else if (entry.isDirectory()) await addEntries(folder, dir, `${path}/`)
    else if (entry.isFile()) await addFile(folder, dir, path)
    else folder.skipped.push(`${path}: ${entry.isSymbolicLink() ? 'a link' : 'not a file'}`)
  }
}

async function addFile(folder: AgentFolder, dir: string, path: string): Promise<void> {
  // The entry may have become a link or a pipe since it was listed.
  const handle = await open(join(dir, path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    const stat = await handle.stat()
    if (!stat.isFile()) return void folder.skipped.push(`${path}: not a file`)
    checkSize(folder, dir, stat.size)
    const content = await handle.readFile()
    folder.bytes += content.length
    const isExecutable = (stat.mode & 0o111) !== 0
    folder.files.push({
      path,
      content: content.toString('base64'),
      ...(isExecutable && { executable: true }),
    })
  } finally {
    await handle.close()
  }
}

function checkSize(folder: AgentFolder, dir: string, nextBytes: number): void {
  const isTooMany = folder.files.length >= MAX_AGENT_FILES
  if (!isTooMany && folder.bytes + nextBytes <= MAX_UPLOAD_BYTES) return
  const limit = isTooMany ? `${MAX_AGENT_FILES} files` : `${Math.floor(MAX_UPLOAD_BYTES / 1024 / 1024)} MB`
  const next = 'Move what the agent does not need (build output, data) out of the folder'
  throw new CliError(EXIT.failed, `${dir} has more than ${limit}`, next)
}

async function readEnv(dir: string): Promise<Record<string, string>> {
  const env: Record<string, string> = {}
  for (const name of ENV_NAMES) Object.assign(env, await readEnvFile(join(dir, name)))
  return env
}

/** The variables in a file, or undefined if there is none. */
export async function readEnvFile(file: string): Promise<Record<string, string> | undefined> {
  try {
    return parseEnv(await readFile(file, 'utf8')) as Record<string, string>
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
