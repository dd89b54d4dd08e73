import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { gzipSync } from 'node:zlib'
import { MAX_AGENT_BYTES } from '@ash-ai/shared'
import fc from 'fast-check'
import { type Header, pack } from 'tar-stream'
import { describe, expect, test } from 'vitest'
import { readArchive } from './agent-archive.ts'

type TestEntry = Partial<Header> & { name: string; text?: string }

async function tar(entries: TestEntry[]): Promise<Buffer> {
  const archive = pack()
  const chunks: Uint8Array[] = []
  archive.on('data', (chunk) => chunks.push(chunk as Uint8Array))
  for (const { text = '', ...header } of entries) archive.entry(header, text)
  archive.finalize()
  await once(archive, 'end')
  return Buffer.concat(chunks)
}

/** Feeds the bytes in chunks of some size, as a network would. */
async function* arriving(bytes: Uint8Array, size = 1000): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size)
}

async function readAll(source: AsyncIterable<Uint8Array>): Promise<Record<string, string>> {
  const files: Record<string, string> = {}
  for await (const { path, isExecutable, content } of readArchive(source)) {
    const chunks: Uint8Array[] = []
    for await (const chunk of content) chunks.push(chunk)
    files[`${path}${isExecutable ? '*' : ''}`] = Buffer.concat(chunks).toString()
  }
  return files
}

const refused = (code: string, message: RegExp) =>
  expect.objectContaining({ name: 'AshError', code, message: expect.stringMatching(message) })

const GOOD = [
  { name: './', type: 'directory' as const },
  { name: './CLAUDE.md', text: '# hi' },
  { name: 'bin/', type: 'directory' as const },
  { name: 'bin/run.sh', text: 'echo', mode: 0o755 },
  { name: `${'long/'.repeat(30)}name`, text: 'deep' },
  { name: 'ünï.txt', text: 'é' },
  { name: 'empty' },
]
const GOOD_FILES = {
  'CLAUDE.md': '# hi',
  'bin/run.sh*': 'echo',
  [`${'long/'.repeat(30)}name`]: 'deep',
  'ünï.txt': 'é',
  empty: '',
}

describe('archives that are fine', () => {
  test.each([1, 2, 511, 513, 100_000])('tar and gzip, arriving %i bytes at a time', async (size) => {
    const bytes = await tar(GOOD)
    expect(await readAll(arriving(bytes, size))).toEqual(GOOD_FILES)
    expect(await readAll(arriving(gzipSync(bytes), size))).toEqual(GOOD_FILES)
  })

  test('made by tar, with GNU and pax long names', async () => {
    const { mkdtemp, mkdir, rm, writeFile } = await import('node:fs/promises')
    const { execFileSync } = await import('node:child_process')
    const dir = await mkdtemp('/tmp/ash-tar-')
    const name = `${'x'.repeat(120)}/${'y'.repeat(130)}`
    await mkdir(`${dir}/${'x'.repeat(120)}`)
    await writeFile(`${dir}/${name}`, 'long')
    await writeFile(`${dir}/CLAUDE.md`, 'hi')
    for (const format of ['gnu', 'pax']) {
      const bytes = execFileSync('tar', ['-C', dir, `--format=${format}`, '-czf', '-', '.'])
      expect(await readAll(arriving(bytes))).toEqual({ 'CLAUDE.md': 'hi', [name]: 'long' })
    }
    await rm(dir, { recursive: true })
  })

  test('whoever stops reading half way leaves nothing running', async () => {
    const bytes = await tar([
      { name: 'a', text: 'x'.repeat(100_000) },
      { name: 'b', text: 'y' },
    ])
    let isFinished = false
    async function* watched() {
      try {
        yield* arriving(bytes)
      } finally {
        isFinished = true
      }
    }
    for await (const { path } of readArchive(watched())) {
      expect(path).toBe('a')
      break
    }
    expect(isFinished).toBe(true)
  })
})

describe('entries that are not allowed', () => {
  test.each(['/etc/passwd', '../x', 'a/../../x', 'a/./b', 'a//b', 'a\\b', '..', './../x', './/x', '/'])(
    'the name %s',
    async (name) => {
      const bytes = await tar([
        { name: 'CLAUDE.md', text: 'hi' },
        { name, text: 'x' },
      ])
      await expect(readAll(arriving(bytes))).rejects.toEqual(
        refused('archive_invalid', /relative path|folder/),
      )
    },
  )

  test.each([
    { type: 'symlink' as const, linkname: '/etc/passwd' },
    { type: 'link' as const, linkname: 'CLAUDE.md' },
    { type: 'character-device' as const, devmajor: 1, devminor: 5 },
    { type: 'block-device' as const },
    { type: 'fifo' as const },
  ])('a $type', async (header) => {
    const bytes = await tar([{ name: 'thing', ...header }])
    await expect(readAll(arriving(bytes))).rejects.toEqual(
      refused('archive_invalid', new RegExp(`"thing" is a ${header.type}`)),
    )
  })

  test.each(['S', 'M', 'V', 'X', 'Z', '9'])('the unknown type %s', async (flag) => {
    const bytes = await tar([{ name: 'thing', text: 'x' }])
    setType(bytes, flag)
    await expect(readAll(arriving(bytes))).rejects.toEqual(
      refused('archive_invalid', /only files and folders/),
    )
  })

  test('a sparse file in pax form', async () => {
    const bytes = await tar([{ name: 'thing', text: 'x', pax: { 'GNU.sparse.major': '1', path: 'thing' } }])
    await expect(readAll(arriving(bytes))).rejects.toEqual(refused('archive_invalid', /sparse/))
  })

  test('a path in a pax header is checked like any other', async () => {
    const bytes = await tar([{ name: 'thing', text: 'x', pax: { path: '../../etc/passwd' } }])
    await expect(readAll(arriving(bytes))).rejects.toEqual(refused('archive_invalid', /relative path/))
  })

  test('a name that is not UTF-8', async () => {
    const bytes = await tar([{ name: 'aaaa', text: 'x' }])
    bytes[1] = 0xff
    fixChecksum(bytes)
    await expect(readAll(arriving(bytes))).rejects.toEqual(refused('archive_invalid', /UTF-8/))
  })
})

describe('archives that are broken', () => {
  test('cut off anywhere', async () => {
    const bytes = await tar(GOOD)
    const zipped = gzipSync(bytes)
    for (let length = 0; length < bytes.length - 512; length += 97) {
      await expect(readAll(arriving(bytes.subarray(0, length)))).rejects.toEqual(
        refused('archive_invalid', /./),
      )
    }
    for (let length = 0; length < zipped.length; length += 17) {
      await expect(readAll(arriving(zipped.subarray(0, length)))).rejects.toEqual(
        refused('archive_invalid', /./),
      )
    }
  })

  test('garbage', async () => {
    const headers = [Buffer.alloc(0), Buffer.from([0x1f, 0x8b]), Buffer.from('ustar')]
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...headers),
        fc.uint8Array({ maxLength: 3000 }),
        async (head, tail) => {
          fc.pre(tail.at(-1) !== 0)
          await expect(readAll(arriving(Buffer.concat([head, tail])))).rejects.toEqual(
            refused('archive_invalid', /./),
          )
        },
      ),
      { numRuns: 100 },
    )
  })

  test('any flipped byte gives the files, other files or archive_invalid, never anything else', async () => {
    const bytes = await tar(GOOD.slice(1, 4))
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), async (at, mask) => {
        const changed = Buffer.from(bytes)
        changed[at] = (changed[at] ?? 0) ^ mask
        const outcome = await readAll(arriving(changed)).catch((error: { code: string }) => error.code)
        expect(typeof outcome === 'object' || outcome === 'archive_invalid').toBe(true)
      }),
      { numRuns: 200 },
    )
  })

  test('a source that breaks off', async () => {
    const bytes = await tar(GOOD)
    async function* broken() {
      yield bytes.subarray(0, 700)
      throw new Error('connection lost')
    }
    await expect(readAll(broken())).rejects.toEqual(refused('archive_invalid', /connection lost/))
  })
})

describe('bombs', () => {
  test('zeros compressed a thousand times', async () => {
    const bomb = gzipSync(await tar([{ name: 'zeros', text: '\0'.repeat(20 * 1024 * 1024) }]))
    expect(bomb.length).toBeLessThan(100_000)
    await expect(readAll(arriving(bomb))).rejects.toEqual(refused('archive_invalid', /compressed more than/))
  })

  test('a small folder that compresses well is no bomb', async () => {
    const small = gzipSync(await tar([{ name: 'zeros', text: '\0'.repeat(1024 * 1024) }]))
    expect(Object.keys(await readAll(arriving(small)))).toEqual(['zeros'])
  })

  test('a file that claims to be enormous is refused before it arrives', async () => {
    const bytes = await tar([{ name: 'huge', text: 'x' }])
    bytes.write(MAX_AGENT_BYTES.toString(8).padStart(11, '0'), 124)
    bytes.write('7', 124)
    fixChecksum(bytes)
    await expect(readAll(arriving(bytes))).rejects.toEqual(refused('payload_too_large', /larger than/))
  })

  test('endless padding after the end is cut off', async () => {
    const block = randomBytes(64 * 1024).fill(0)
    async function* endless() {
      yield await tar(GOOD)
      for (;;) yield block
    }
    await expect(readAll(endless())).rejects.toEqual(refused('payload_too_large', /unpacks to more/))
  })
})

function setType(bytes: Buffer, flag: string): void {
  bytes.write(flag, 156)
  fixChecksum(bytes)
}

/** The header's checksum counts its own field as spaces. */
function fixChecksum(bytes: Buffer): void {
  bytes.fill(' ', 148, 156)
  const sum = bytes.subarray(0, 512).reduce((total, byte) => total + byte, 0)
  bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
}
