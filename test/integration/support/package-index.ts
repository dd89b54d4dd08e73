import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { crc32, gzipSync } from 'node:zlib'
import { tar } from './tar.ts'

/** A package index for pip and a registry for npm, with one package each. */
export interface PackageIndex {
  /** As a network policy names it. */
  host: string
  pipUrl: string
  npmUrl: string
  /** Paths asked for so far. */
  asked: string[]
  /** Answers whoever asks for `/gate`: 200 or 503. Until then they wait. */
  openGate(isGood: boolean): void
  /** From now on who asks for `/gate` waits again. */
  closeGate(): void
  close(): Promise<void>
}

/** `ash-demo` 1.0.0: a module `ash_demo` and a command `ash-demo` for pip, a module and a command for npm. */
export async function startPackageIndex(): Promise<PackageIndex> {
  const asked: string[] = []
  let gate = Promise.withResolvers<boolean>()
  const server = createServer(async (request, response) => {
    const path = request.url ?? ''
    asked.push(path)
    if (path === '/gate') {
      response.writeHead((await gate.promise) ? 200 : 503).end()
      return
    }
    const body = answer(path, `http://${host}`)
    response.writeHead(body === undefined ? 404 : 200, { 'content-type': typeOf(path) }).end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    host,
    pipUrl: `http://${host}/simple`,
    npmUrl: `http://${host}/npm`,
    asked,
    openGate: (isGood) => gate.resolve(isGood),
    closeGate: () => {
      gate = Promise.withResolvers()
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function answer(path: string, base: string): string | Buffer | undefined {
  switch (path) {
    case '/simple/ash-demo/':
      return `<a href="/files/${WHEEL}">${WHEEL}</a>`
    case `/files/${WHEEL}`:
      return wheel()
    case '/npm/ash-demo':
      return JSON.stringify(packument(base))
    case '/npm/ash-demo.tgz':
      return npmTarball()
    default:
      return undefined
  }
}

const typeOf = (path: string) => (path === '/npm/ash-demo' ? 'application/json' : 'text/html')

const WHEEL = 'ash_demo-1.0.0-py3-none-any.whl'

function wheel(): Buffer {
  const info = 'ash_demo-1.0.0.dist-info'
  return zip({
    'ash_demo/__init__.py': 'WORD = "from pip"\ndef main():\n    print(WORD)\n',
    [`${info}/METADATA`]: 'Metadata-Version: 2.1\nName: ash-demo\nVersion: 1.0.0\n',
    [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    [`${info}/entry_points.txt`]: '[console_scripts]\nash-demo = ash_demo:main\n',
    [`${info}/RECORD`]: '',
  })
}

function packument(base: string) {
  const integrity = `sha512-${createHash('sha512').update(npmTarball()).digest('base64')}`
  const dist = { tarball: `${base}/npm/ash-demo.tgz`, integrity }
  const version = { name: 'ash-demo', version: '1.0.0', bin: { 'ash-demo-js': 'cli.js' }, dist }
  return { name: 'ash-demo', 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': version } }
}

function npmTarball(): Buffer {
  const manifest = { name: 'ash-demo', version: '1.0.0', bin: { 'ash-demo-js': 'cli.js' } }
  return gzipSync(
    tar(
      { name: 'package/package.json', content: JSON.stringify(manifest) },
      { name: 'package/index.js', content: "module.exports = 'from npm'\n" },
      {
        name: 'package/cli.js',
        content: "#!/usr/bin/env node\nconsole.log(require('./index.js'))\n",
        mode: 0o755,
      },
    ),
  )
}

/** Files without compression. */
function zip(files: Record<string, string>): Buffer {
  const parts: Buffer[] = []
  const directory: Buffer[] = []
  let offset = 0
  for (const [name, text] of Object.entries(files)) {
    const [path, content] = [Buffer.from(name), Buffer.from(text)]
    const facts = Buffer.alloc(26)
    facts.writeUInt16LE(20, 0)
    facts.writeUInt32LE(0x00210000, 6) // 1980-01-01, the earliest there is
    facts.writeUInt32LE(crc32(content), 10)
    facts.writeUInt32LE(content.length, 14)
    facts.writeUInt32LE(content.length, 18)
    facts.writeUInt16LE(path.length, 22)
    const entry = Buffer.concat([Buffer.from('PK\x03\x04'), facts, path, content])
    const place = Buffer.alloc(14)
    place.writeUInt32LE(offset, 10)
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), facts, place, path]))
    parts.push(entry)
    offset += entry.length
  }
  const listing = Buffer.concat(directory)
  const end = Buffer.alloc(18)
  end.writeUInt16LE(parts.length, 4)
  end.writeUInt16LE(parts.length, 6)
  end.writeUInt32LE(listing.length, 8)
  end.writeUInt32LE(offset, 12)
  return Buffer.concat([...parts, listing, Buffer.from('PK\x05\x06'), end])
}
