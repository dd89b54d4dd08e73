// pnpm openapi: writes docs/openapi.json as a server serves it, so that the file cannot say anything else.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createLogger, readConfig, startServer } from '@ash-ai/server'

const OUTPUT = resolve(import.meta.dirname, '..', 'docs', 'openapi.json')

const dataDir = await mkdtemp(join(tmpdir(), 'ash-openapi-'))
try {
  const document = await readDocument(dataDir)
  await writeFile(OUTPUT, `${JSON.stringify(document, null, 2)}\n`)
} finally {
  await rm(dataDir, { recursive: true, force: true })
}

/** No session is made, so neither bubblewrap nor the bundled bridge has to be there. */
async function readDocument(dataDir: string): Promise<unknown> {
  const config = readConfig({
    ASH_DATA_DIR: dataDir,
    ASH_PORT: '0',
    ASH_PROVIDER: 'process',
    ASH_BRIDGE_ENTRY: fileURLToPath(import.meta.url),
  })
  const server = await startServer(config, createLogger('silent'))
  try {
    const reply = await fetch(`${server.url}/openapi.json`)
    if (!reply.ok) throw new Error(`/openapi.json answered ${reply.status}`)
    return await reply.json()
  } finally {
    await server.close()
  }
}
