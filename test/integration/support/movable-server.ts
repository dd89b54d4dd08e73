import { chmod, mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startTestServer, type TestServer } from './test-server.ts'

/** A server that can be started again with other settings, and on another data directory. */
export interface MovableServer {
  server: TestServer
  /** Of its next start. */
  env: Record<string, string>
  dataDir(): string
  /** Ends it, does something meanwhile and starts it again. */
  restart(end: 'stop' | 'kill', meanwhile?: () => Promise<unknown> | unknown): Promise<void>
}

export async function startMovableServer(settings: Record<string, string> = {}): Promise<MovableServer> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-test-'))
  // Sandbox users pass through.
  await chmod(folder, 0o711)
  const dataDir = join(folder, 'data')
  const env: Record<string, string> = { ASH_API_KEY: 'key-of-the-test', ASH_DATA_DIR: dataDir, ...settings }
  const server = await startTestServer({ dataDir: folder, env })
  return {
    server,
    env,
    dataDir: () => env.ASH_DATA_DIR ?? dataDir,
    async restart(end, meanwhile = () => {}) {
      await server[end]()
      await meanwhile()
      await server.start()
    },
  }
}
