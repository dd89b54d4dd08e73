import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, onTestFinished, vi } from 'vitest'
import { openRemoteStore } from '../checkpoints/remote-open.ts'
import type { RemoteStoreConfig } from '../checkpoints/remote-store.ts'

const BUCKET = 'ash-test'
/** What s3rver accepts, for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY alike. */
export const S3_TEST_KEY = 'S3RVER'

/** A process that speaks S3 over a folder. It can be stopped and started again, like the one of a bad day. */
class S3Server {
  readonly #dir: string
  #port = 0
  #process: ChildProcess | undefined

  static async start(dir: string): Promise<S3Server> {
    const server = new S3Server(dir)
    await server.start()
    return server
  }

  private constructor(dir: string) {
    this.#dir = dir
  }

  /** Again at the address it had. */
  async start(): Promise<void> {
    const keeper = fileURLToPath(new URL('./s3-keeper.ts', import.meta.url))
    // s3rver seals its continuation tokens with a cipher that OpenSSL has retired.
    const args = ['--openssl-legacy-provider', keeper, this.#dir, String(this.#port), BUCKET]
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
    const [line] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
    if (child.exitCode !== null) throw new Error(`s3rver ended with code ${child.exitCode}`)
    this.#port = Number(line)
    this.#process = child
  }

  async stop(): Promise<void> {
    const child = this.#process
    this.#process = undefined
    if (!child) return
    child.kill('SIGKILL')
    await once(child, 'exit')
  }

  config(prefix: string): RemoteStoreConfig {
    return {
      bucket: BUCKET,
      prefix,
      endpoint: `http://127.0.0.1:${this.#port}`,
      region: 'us-east-1',
      pathStyle: true,
    }
  }

  /** The file in which it keeps the bytes of an object. */
  objectFile(key: string): string {
    return join(this.#dir, BUCKET, `${key}._S3rver_object`)
  }

  /** As if the object had been put that long ago. */
  async age(key: string, ms: number): Promise<void> {
    const then = new Date(Date.now() - ms)
    await utimes(this.objectFile(key), then, then)
  }

  /** All in a folder. */
  async ageAll(folder: string, ms: number): Promise<void> {
    const then = new Date(Date.now() - ms)
    for (const file of await readdir(join(this.#dir, BUCKET, folder))) {
      await utimes(join(this.#dir, BUCKET, folder, file), then, then)
    }
  }
}

/** A server for the tests of a file; each opening has a place of its own in it. */
export function useS3() {
  let server: S3Server
  let dir: string
  let places = 0
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'ash-s3-'))
    server = await S3Server.start(dir)
  })
  afterAll(async () => {
    await server.stop()
    await rm(dir, { recursive: true, force: true })
  })
  return {
    server: () => server,
    /** A configuration nobody used before; this process has the key to it until the test is over. */
    place(): RemoteStoreConfig {
      vi.stubEnv('AWS_ACCESS_KEY_ID', S3_TEST_KEY)
      vi.stubEnv('AWS_SECRET_ACCESS_KEY', S3_TEST_KEY)
      onTestFinished(() => void vi.unstubAllEnvs())
      return server.config(`place-${++places}/`)
    },
    async open() {
      const config = this.place()
      const remote = await openRemoteStore(config, 'database-1')
      onTestFinished(() => remote.close())
      return { remote, config, prefix: config.prefix }
    },
  }
}
