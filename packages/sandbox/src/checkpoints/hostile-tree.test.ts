import { execFileSync, spawn } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test } from 'vitest'
import { BlobSink } from './blob-sink.ts'
import { DeepPaths } from './deep-paths.ts'
import { joinPath } from './entry-path.ts'
import { storeContent } from './file-content.ts'
import { CHUNK_BYTES } from './manifest-entry.ts'
import { describeTree } from './testing/describe-tree.ts'
import { storeFixture, TENANT } from './testing/store-fixture.ts'

const isRoot = process.getuid?.() === 0

function withSession() {
  const fixture = storeFixture()
  const session = fixture.session('one')
  const at = (path: string) => join(session.roots.workspace, path)
  const paths = async (manifest: string) =>
    (await fixture.store.list(TENANT, manifest, { limit: 1000 })).files.map(({ path }) => path)
  return { ...fixture, session, at, paths }
}

/** Goes on with `work` as fast as it can while `other`, in a thread, is under way. */
async function during<Result>(other: Promise<Result>, work: () => void): Promise<Result> {
  let isOver = false
  const over = () => {
    isOver = true
  }
  void other.then(over, over)
  while (!isOver) {
    for (let round = 0; round < 20; round++) work()
    await setImmediate()
  }
  return other
}

describe('a tree that changes while it is scanned', () => {
  test('nothing from outside is ever saved, and nothing outside is changed', async () => {
    const { dir, snapshots, save, session, at } = withSession()
    const outside = join(dir, 'outside')
    for (const folder of [outside, join(outside, 'sub'), at('folder'), at('folder/sub')]) mkdirSync(folder)
    for (const path of [join(outside, 'file'), join(outside, 'sub/file')])
      writeFileSync(path, 'from outside', { mode: 0o600 })
    for (const path of [at('folder/file'), at('folder/sub/file'), at('file')])
      writeFileSync(path, 'from inside')
    symlinkSync(outside, at('link'))
    symlinkSync(join(outside, 'file'), at('filelink'))
    const before = [outside, join(outside, 'file'), join(outside, 'sub')].map(
      (path) => statSync(path).ctimeMs,
    )
    const swap = (real: string, link: string) => {
      renameSync(at(real), at('aside'))
      renameSync(at(link), at(real))
      renameSync(at(real), at(link))
      renameSync(at('aside'), at(real))
    }
    let seen = 0
    const endMs = Date.now() + 1500
    while (Date.now() < endMs) {
      const { files } = await during(save(session, {}), () => {
        swap('folder', 'link')
        swap('file', 'filelink')
      })
      seen += files
    }
    expect(seen).toBeGreaterThan(0)
    for (const name of readdirSync(snapshots, { recursive: true, encoding: 'utf8' })) {
      const path = join(snapshots, name)
      if (lstatSync(path).isFile()) expect(readFileSync(path, 'latin1')).not.toContain('from outside')
    }
    const after = [outside, join(outside, 'file'), join(outside, 'sub')].map((path) => statSync(path).ctimeMs)
    expect(after).toEqual(before)
  })

  test('a folder that is moved while its depths are scanned is told, and nothing else goes wrong', async () => {
    const { save, session, at } = withSession()
    const chain = (length: number) => Array(length).fill('d').join('/')
    mkdirSync(at(chain(90)), { recursive: true })
    for (const depth of [66, 75, 85]) mkdirSync(at(`${chain(depth)}/e`))
    mkdirSync(at('elsewhere'))
    let saves = 0
    for (const endMs = Date.now() + 700; Date.now() < endMs; saves++) {
      const outcome = save(session, {}).then(
        () => 'saved',
        (error) => error,
      )
      const ended = await during(outcome, () => {
        renameSync(at(chain(70)), at('elsewhere/d'))
        renameSync(at('elsewhere/d'), at(chain(70)))
      })
      if (ended !== 'saved') {
        expect(ended).toMatchObject({
          code: 'checkpoint_failed',
          message: expect.stringContaining('moved while'),
        })
      }
    }
    expect(saves).toBeGreaterThan(0)
  })

  test('a file that never rests is saved all the same, as a part of what was written', async () => {
    const { store, save, session, at } = withSession()
    const content = Buffer.alloc(2 * CHUNK_BYTES, 'line\n')
    writeFileSync(at('log'), content)
    const { manifest } = await during(save(session, {}), () => appendFileSync(at('log'), 'line\n'))
    const saved = await (await store.openFile(TENANT, manifest, 'log')).stream().toArray()
    const text = Buffer.concat(saved)
    expect(text.length).toBeGreaterThanOrEqual(content.length)
    expect(text.equals(readFileSync(at('log')).subarray(0, text.length))).toBe(true)
  })

  test('a file changed right after a save is saved again, though its size and times are the same', async () => {
    const { store, save, session, at } = withSession()
    writeFileSync(at('f'), 'one')
    await save(session)
    writeFileSync(at('f'), 'two')
    const { manifest } = await save(session)
    const parts = await (await store.openFile(TENANT, manifest, 'f')).stream().toArray()
    expect(Buffer.concat(parts).toString()).toBe('two')
  })
})

describe('a file that is mapped into memory', () => {
  const PROGRAM = `
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    pages = mmap.mmap(file.fileno(), 0)
pages[0:1] = b'1'
print('ready', flush=True)
for line in sys.stdin:
    if line == 'unmap\\n':
        pages.close()
    else:
        pages[0:1] = line[0:1].encode()
    print('done', flush=True)
`

  async function withMapping() {
    const fixture = withSession()
    const path = fixture.at('mapped')
    writeFileSync(path, '0'.repeat(4096))
    const child = spawn('python3', ['-c', PROGRAM, path], { stdio: ['pipe', 'pipe', 'inherit'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
    await lines.next()
    const tell = async (line: string) => {
      child.stdin.write(`${line}\n`)
      await lines.next()
    }
    // Only a file that has rested for a second can be known by its times at all.
    await expect.poll(() => Date.now() - statSync(path).ctimeMs, { timeout: 5000 }).toBeGreaterThan(1100)
    const savedByte = async (pids: number[] | undefined) => {
      const { manifest } = await fixture.save(fixture.session, { pids })
      const [first] = await (await fixture.store.openFile(TENANT, manifest, 'mapped')).stream().toArray()
      return String(first).slice(0, 1)
    }
    return { tell, savedByte, pids: [child.pid ?? 0], ctimeMs: () => statSync(path).ctimeMs }
  }

  test('is saved again while it is mapped, and once after, though its ctime stays', async () => {
    const { tell, savedByte, pids, ctimeMs } = await withMapping()
    const before = ctimeMs()
    expect(await savedByte(pids)).toBe('1')
    await tell('2')
    expect(await savedByte(pids)).toBe('2')
    await tell('3')
    await tell('unmap')
    expect(ctimeMs()).toBe(before)
    expect(await savedByte([])).toBe('3')
  })

  test('is saved again where nobody can see the mappings', async () => {
    const { tell, savedByte, ctimeMs } = await withMapping()
    const before = ctimeMs()
    expect(await savedByte(undefined)).toBe('1')
    await tell('2')
    expect(ctimeMs()).toBe(before)
    expect(await savedByte(undefined)).toBe('2')
  })
})

describe('strange entries', () => {
  test('pipes and sockets are left out, and nobody waits for them', async () => {
    const { save, session, at, paths } = withSession()
    execFileSync('mkfifo', [at('pipe')])
    const server = createServer().listen(at('socket'))
    onTestFinished(() => void server.close())
    await expect.poll(() => readdirSync(session.roots.workspace)).toContain('socket')
    writeFileSync(at('file'), '')
    expect(await paths((await save(session)).manifest)).toEqual(['file'])
  })

  test('a path that is too long is told', async () => {
    const { save, session } = withSession()
    const deep = new DeepPaths(session.roots.workspace)
    const name = 'deep'.repeat(60)
    for (let path = name; path.length < 4500; path = joinPath(path, name)) mkdirSync(deep.at(path))
    deep.close()
    await expect(save(session)).rejects.toMatchObject({
      code: 'checkpoint_failed',
      message: expect.stringMatching(/"deepdeep.*4096 bytes/),
    })
  })

  test('sparse files are read up to a limit, and the one beyond it is named', async () => {
    const { snapshots, at } = withSession()
    writeFileSync(at('huge'), 'x')
    await using file = await open(at('huge'), 'r+')
    await file.truncate(10 * CHUNK_BYTES)
    const stats = statSync(at('huge'))
    const blobs = new BlobSink({ dir: snapshots, tenantId: TENANT, sync: false })
    const read = (bytesLeft: number) => storeContent(file.fd, stats, 'huge', { blobs, sparse: { bytesLeft } })
    expect(read(10 * CHUNK_BYTES)).toMatchObject({ size: 10 * CHUNK_BYTES, chunks: { length: 1 } })
    expect(() => read(9 * CHUNK_BYTES)).toThrow(/"huge" is, with others, a sparse file/)
  })

  test.runIf(isRoot)(
    'folders and files that their mode closes are saved by who owns them, and stay closed',
    async () => {
      const { dir, snapshots, restore, session, emptySession, at } = withSession()
      const uid = 65534
      for (const folder of ['unreadable', 'unsearchable', 'closed', 'closed/inner']) mkdirSync(at(folder))
      const files = ['unreadable/f', 'unsearchable/f', 'closed/f', 'closed/inner/f']
      for (const file of files) writeFileSync(at(file), file, { mode: 0o000 })
      mkdirSync(snapshots)
      for (const path of [dir, join(dir, 'one'), snapshots, session.roots.home, session.roots.workspace])
        chownSync(path, uid, uid)
      for (const path of readdirSync(session.roots.workspace, { recursive: true, encoding: 'utf8' }))
        chownSync(at(path), uid, uid)
      for (const [folder, mode] of [
        ['unreadable', 0o300],
        ['unsearchable', 0o600],
        ['closed/inner', 0],
        ['closed', 0],
      ] as const) {
        chmodSync(at(folder), mode)
      }
      const before = describeTree(session.roots.workspace)
      const task = { tenantId: TENANT, ...session, generation: 'g', pids: [] }
      const script = fileURLToPath(new URL('./testing/save-as-user.ts', import.meta.url))
      const argument = JSON.stringify({ uid, store: { dir: snapshots, sync: false }, task })
      const manifest = execFileSync(process.execPath, [script, argument], { encoding: 'utf8' })
      expect(describeTree(session.roots.workspace)).toEqual(before)
      const copy = emptySession('copy')
      await restore(manifest, copy)
      expect(describeTree(copy.roots.workspace)).toEqual(before)
    },
  )
})

describe('what is left out', () => {
  test('what .ashignore names, and a folder it names is not entered', async () => {
    const { save, session, at, paths } = withSession()
    writeFileSync(at('.ashignore'), '# caches\nbuild/\n*.tmp\n!keep.tmp\n')
    for (const folder of ['build', 'build/deep', 'src']) mkdirSync(at(folder))
    for (const file of ['build/x', 'build/deep/keep.tmp', 'src/a.tmp', 'src/keep.tmp', 'src/a'])
      writeFileSync(at(file), '')
    expect(await paths((await save(session)).manifest)).toEqual([
      '.ashignore',
      'src',
      'src/a',
      'src/keep.tmp',
    ])
  })

  test.each([
    ['a link', (path: string, outside: string) => symlinkSync(outside, path)],
    ['a folder', (path: string) => mkdirSync(path)],
    ['a pipe', (path: string) => execFileSync('mkfifo', [path])],
  ])('.ashignore that is %s is not read', async (_, make) => {
    const { dir, save, session, at, paths } = withSession()
    writeFileSync(join(dir, 'outside'), '*\n')
    make(at('.ashignore'), join(dir, 'outside'))
    writeFileSync(at('kept'), '')
    expect(await paths((await save(session)).manifest)).toContain('kept')
  })

  test('caches of tools under the home, and nothing else of it', async () => {
    const { save, restore, session, emptySession } = withSession()
    const kept = ['.cache/other', '.npm', '.claude/projects', 'node_modules/.cache/pip', '.local/lib']
    const caches = [
      '.cache/pip',
      '.cache/uv',
      '.npm/_cacache',
      '.npm/_npx',
      '.cargo/registry/cache',
      'go/pkg/mod/cache',
    ]
    for (const folder of [...kept, ...caches]) {
      mkdirSync(join(session.roots.home, folder), { recursive: true })
      writeFileSync(join(session.roots.home, folder, 'f'), '')
    }
    const copy = emptySession('copy')
    await restore((await save(session)).manifest, copy)
    const files = readdirSync(copy.roots.home, { recursive: true, encoding: 'utf8' }).filter((path) =>
      path.endsWith('/f'),
    )
    expect(files.sort()).toEqual(kept.map((folder) => `${folder}/f`).sort())
  })
})
