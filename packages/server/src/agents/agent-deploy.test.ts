import { mkdir, open, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { openSecretBox } from '../db/secret-box.ts'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import type { SessionRow } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { cleanAgentFolders, type DeployRequest, deployAgent, removeAgent } from './agent-deploy.ts'
import { agentVersionDir, type FolderEntry } from './agent-folder.ts'
import { type AgentStore, getAgent, getAgentForSession, listAgents, listVersions } from './agent-queries.ts'
import { readLocalFolder } from './local-folder.ts'

const file = (path: string, text = '', isExecutable = false): FolderEntry => ({
  path,
  isExecutable,
  content: [Buffer.from(text)],
})
const CLAUDE = file('CLAUDE.md', '# hi')
const refused = (code: string, message = /./) =>
  expect.objectContaining({ name: 'AshError', code, message: expect.stringMatching(message) })

for (const database of testDatabases) {
  describe(`agents on ${database.kind}`, () => {
    let opened: TestDb
    let store: AgentStore
    beforeAll(async () => {
      opened = await database.open()
      store = { db: opened.db, dataDir: opened.dataDir, secrets: await openSecretBox(opened) }
    })
    afterAll(() => opened.close())
    beforeEach(async () => {
      await store.db.deleteFrom('sessions').execute()
      await store.db.deleteFrom('agents').execute()
      await rm(join(store.dataDir, 'agents'), { recursive: true, force: true })
    })

    const deploy = (request: Partial<DeployRequest> = {}, tenantId = 'default') =>
      deployAgent(store, tenantId, { name: 'bot', entries: [CLAUDE], ...request })
    const folders = async () => {
      const tenants = await readdir(join(store.dataDir, 'agents')).catch(() => [])
      const inside = await Promise.all(tenants.map((name) => readdir(join(store.dataDir, 'agents', name))))
      return inside.flat()
    }
    const rows = async () => ({
      agents: await store.db.selectFrom('agents').selectAll().execute(),
      versions: await store.db.selectFrom('agent_versions').selectAll().execute(),
    })

    test('a folder becomes version 1, readable by a sandbox user', async () => {
      const before = process.umask(0o077)
      const entries = [CLAUDE, file('bin/tool', '#!', true), file('bin/data', 'd')]
      const { agent, isNew } = await deploy({ entries, config: { model: 'm' }, env: { TOKEN: 'hunter2' } })
      process.umask(before)
      expect(isNew).toBe(true)
      expect(agent).toMatchObject({ name: 'bot', version: 1, config: { model: 'm' }, env: { TOKEN: '***' } })
      const { dir, env } = await getAgentForSession(store, 'default', 'bot')
      expect(env).toEqual({ TOKEN: 'hunter2' })
      expect(dir).toBe(agentVersionDir(store.dataDir, 'default', agent.contentHash))
      const modes = ['', 'CLAUDE.md', 'bin', 'bin/tool', 'bin/data'].map(
        async (path) => (await stat(join(dir, path))).mode & 0o777,
      )
      expect(await Promise.all(modes)).toEqual([0o755, 0o644, 0o755, 0o755, 0o644])
      expect(await readFile(join(dir, 'CLAUDE.md'), 'utf8')).toBe('# hi')
    })

    test('no secret is in the database', async () => {
      await deploy({ env: { TOKEN: 'hunter2' } })
      expect(JSON.stringify(await rows())).not.toContain('hunter2')
    })

    test('the same again is the same version', async () => {
      const request = { config: { model: 'm', maxTurns: 3 }, env: { A: '1', B: '2' } }
      await deploy(request)
      const same = { config: { maxTurns: 3, model: 'm' }, env: { B: '2', A: '1' } }
      expect(await deploy(same)).toMatchObject({ isNew: false, agent: { version: 1 } })
      expect((await rows()).versions).toHaveLength(1)
      expect(await folders()).toHaveLength(1)
    })

    test('the order of the files does not matter; bytes, names and modes do', async () => {
      const hash = async (...entries: FolderEntry[]) => (await deploy({ entries })).agent.contentHash
      const first = await hash(CLAUDE, file('a', '1'), file('b', '2'))
      expect(await hash(file('b', '2'), CLAUDE, file('a', '1'))).toBe(first)
      const others = [
        await hash(CLAUDE, file('a', '2'), file('b', '1')),
        await hash(CLAUDE, file('a', '1', true), file('b', '2')),
        await hash(CLAUDE, file('a', '1'), file('c', '2')),
        await hash(CLAUDE, file('a', '12'), file('b', '')),
      ]
      expect(new Set([first, ...others]).size).toBe(5)
    })

    test('a change of files, options or environment is a new version, and old ones stay', async () => {
      await deploy()
      await deploy({ entries: [file('CLAUDE.md', 'v2')] })
      await deploy({ entries: [file('CLAUDE.md', 'v2')], config: { model: 'm' } })
      const { agent } = await deploy({
        entries: [file('CLAUDE.md', 'v2')],
        config: { model: 'm' },
        env: { A: '1' },
      })
      expect(agent.version).toBe(4)
      expect((await listVersions(store.db, 'default', 'bot')).map(({ version }) => version)).toEqual([
        4, 3, 2, 1,
      ])
      const old = await getAgentForSession(store, 'default', 'bot', 1)
      expect(await readFile(join(old.dir, 'CLAUDE.md'), 'utf8')).toBe('# hi')
      await expect(getAgentForSession(store, 'default', 'bot', 5)).rejects.toEqual(
        refused('agent_not_found', /version 5/),
      )
      const back = await deploy()
      expect(back).toMatchObject({ isNew: true, agent: { version: 5 } })
    })

    test('many at once get a number each, equal ones share it', async () => {
      const entries = (n: number) => [file('CLAUDE.md', `text ${n}`)]
      const different = Array.from({ length: 10 }, (_, n) => deploy({ entries: entries(n) }))
      const versions = (await Promise.all(different)).map(({ isNew }) => isNew)
      expect(versions).toEqual(Array(10).fill(true))
      expect((await listVersions(store.db, 'default', 'bot')).map(({ version }) => version)).toEqual([
        10, 9, 8, 7, 6, 5, 4, 3, 2, 1,
      ])
      const equal = await Promise.all(Array.from({ length: 10 }, () => deploy({ name: 'twin' })))
      expect(equal.filter(({ isNew }) => isNew)).toHaveLength(1)
      expect(await listVersions(store.db, 'default', 'twin')).toHaveLength(1)
      expect(await readdir(join(store.dataDir, 'agents', '.staging'))).toEqual([])
    })

    test('a prompt alone becomes CLAUDE.md, and does not replace one', async () => {
      await deploy({ entries: [], systemPrompt: 'be kind' })
      const { dir } = await getAgentForSession(store, 'default', 'bot')
      expect(await readFile(join(dir, 'CLAUDE.md'), 'utf8')).toBe('be kind')
      const both = await deploy({ name: 'both', systemPrompt: 'be kind' })
      const second = agentVersionDir(store.dataDir, 'default', both.agent.contentHash)
      expect(await readFile(join(second, 'CLAUDE.md'), 'utf8')).toBe('# hi')
    })

    test('options come from ash.json, and the request wins', async () => {
      const entries = [CLAUDE, file('ash.json', '{"model":"from file","maxTurns":5}')]
      const { agent } = await deploy({ entries, config: { model: 'from request' } })
      expect(agent.config).toEqual({ model: 'from request', maxTurns: 5 })
    })

    async function* breaking(): AsyncGenerator<FolderEntry> {
      yield CLAUDE
      throw new Error('connection lost')
    }
    /** The kernel's own word for a full disk, from the device that is always full. */
    async function* fillingUp(): AsyncGenerator<FolderEntry> {
      yield CLAUDE
      await using full = await open('/dev/full', 'w')
      await full.write('text')
    }
    test.each<[string, () => Partial<DeployRequest>, RegExp]>([
      ['no CLAUDE.md', () => ({ entries: [file('README.md')] }), /no CLAUDE\.md/],
      ['CLAUDE.md in a folder only', () => ({ entries: [file('a/CLAUDE.md')] }), /no CLAUDE\.md/],
      ['a path twice', () => ({ entries: [CLAUDE, file('a'), file('a')] }), /"a" appears twice/],
      ['a file where a folder is', () => ({ entries: [CLAUDE, file('a/b'), file('a')] }), /"a" collides/],
      ['a folder where a file is', () => ({ entries: [CLAUDE, file('a'), file('a/b')] }), /"a\/b" collides/],
      ['a path that leads out', () => ({ entries: [CLAUDE, file('../x')] }), /relative path/],
      ['an absolute path', () => ({ entries: [CLAUDE, file('/tmp/x')] }), /relative path/],
      ['a name too long for the disk', () => ({ entries: [CLAUDE, file('ü'.repeat(200))] }), /too long/],
      [
        'ash.json that is no JSON',
        () => ({ entries: [CLAUDE, file('ash.json', '{')] }),
        /ash\.json is not valid JSON/,
      ],
      [
        'ash.json with faults',
        () => ({ entries: [CLAUDE, file('ash.json', '{"maxTurns":0,"x":1}')] }),
        /ash\.json\.maxTurns: /,
      ],
      ['ash.json that is a list', () => ({ entries: [CLAUDE, file('ash.json', '[]')] }), /ash\.json: /],
      ['a source that breaks off', () => ({ entries: breaking() }), /connection lost/],
      [
        'what the disk has no room for',
        () => ({ entries: fillingUp() }),
        /no room left on the server’s disk/,
      ],
    ])('%s is refused and leaves no trace', async (_name, request, message) => {
      await expect(deploy(request())).rejects.toThrow(message)
      expect(await folders()).toEqual([])
      expect(await rows()).toEqual({ agents: [], versions: [] })
    })

    test('tenants do not see each other', async () => {
      await deploy({ env: { A: '1' } }, 'one')
      await deploy({ entries: [file('CLAUDE.md', 'two')] }, 'two')
      await deploy({ name: 'only-one' }, 'one')
      expect((await getAgentForSession(store, 'two', 'bot')).env).toEqual({})
      expect((await listAgents(store, 'two', { limit: 10 })).agents.map(({ name }) => name)).toEqual(['bot'])
      await expect(getAgent(store, 'two', 'only-one')).rejects.toEqual(refused('agent_not_found'))
      await expect(removeAgent(store, 'two', 'only-one')).rejects.toEqual(refused('agent_not_found'))
      await removeAgent(store, 'two', 'bot')
      expect(
        await readFile(join((await getAgentForSession(store, 'one', 'bot')).dir, 'CLAUDE.md'), 'utf8'),
      ).toBe('# hi')
    })

    test('lists page by name without gap or repetition', async () => {
      for (const name of ['c', 'a', 'e', 'b', 'd']) await deploy({ name })
      const seen: string[] = []
      let after: string | undefined
      for (let page = 0; page < 3; page++) {
        const { agents, nextCursor } = await listAgents(store, 'default', {
          limit: 2,
          ...(after && { after }),
        })
        seen.push(...agents.map(({ name }) => name))
        after = nextCursor
      }
      expect([seen, after]).toEqual([['a', 'b', 'c', 'd', 'e'], undefined])
      expect((await listAgents(store, 'default', { limit: 5 })).nextCursor).toBeUndefined()
    })

    test('a deleted agent is gone, with the folders that no other agent has', async () => {
      await deploy({ name: 'twin' })
      await deploy()
      const { agent } = await deploy({ entries: [file('CLAUDE.md', 'own')] })
      await removeAgent(store, 'default', 'bot')
      await expect(getAgent(store, 'default', 'bot')).rejects.toEqual(refused('agent_not_found'))
      await expect(stat(agentVersionDir(store.dataDir, 'default', agent.contentHash))).rejects.toThrow(
        'ENOENT',
      )
      const { dir } = await getAgentForSession(store, 'default', 'twin')
      expect(await readFile(join(dir, 'CLAUDE.md'), 'utf8')).toBe('# hi')
      await expect(removeAgent(store, 'default', 'bot')).rejects.toEqual(refused('agent_not_found'))
    })

    test.each(['starting', 'active', 'paused', 'error', 'ended'] as const)(
      'a session that is %s',
      async (status) => {
        await deploy()
        await insertSession(store, status)
        const deleting = removeAgent(store, 'default', 'bot')
        if (status === 'ended') {
          await deleting
          return
        }
        await expect(deleting).rejects.toEqual(refused('agent_in_use', /0b0e6f6e/))
        const { dir } = await getAgentForSession(store, 'default', 'bot')
        expect(await readdir(dir)).toEqual(['CLAUDE.md'])
      },
    )

    test('deploying and deleting the same content at once never leaves an agent without files', async () => {
      for (let round = 0; round < 5; round++) {
        await deploy({ name: 'a' })
        await Promise.all([removeAgent(store, 'default', 'a'), deploy({ name: 'b' }), deploy({ name: 'c' })])
        for (const name of ['b', 'c']) {
          const { dir } = await getAgentForSession(store, 'default', name)
          expect(await readdir(dir)).toEqual(['CLAUDE.md'])
        }
        await Promise.all([removeAgent(store, 'default', 'b'), removeAgent(store, 'default', 'c')])
      }
      expect(await folders()).toEqual([])
    })

    test('what a crash left behind is removed at the next start, and nothing else', async () => {
      const { agent } = await deploy()
      const staging = join(store.dataDir, 'agents', '.staging', 'half')
      const orphan = agentVersionDir(store.dataDir, 'default', 'f'.repeat(64))
      for (const dir of [staging, orphan]) await mkdir(dir, { recursive: true })
      await cleanAgentFolders(store)
      expect(await folders()).toEqual([agent.contentHash])
      await cleanAgentFolders({ ...store, dataDir: join(store.dataDir, 'empty') })
    })

    test('a folder of this machine is read without links, .git and .env', async () => {
      const dir = join(store.dataDir, 'source')
      await mkdir(join(dir, '.git'), { recursive: true })
      await mkdir(join(dir, 'node_modules', 'x'), { recursive: true })
      for (const path of [
        'CLAUDE.md',
        '.env',
        '.env.local',
        '.git/config',
        'node_modules/x/index.js',
        '.mcp.json',
      ]) {
        await writeFile(join(dir, path), path)
      }
      await writeFile(join(dir, 'run'), '', { mode: 0o755 })
      const { agent } = await deploy({ entries: readLocalFolder(dir) })
      const target = agentVersionDir(store.dataDir, 'default', agent.contentHash)
      const files = (await readdir(target, { recursive: true, withFileTypes: true })).filter((entry) =>
        entry.isFile(),
      )
      expect(files.map(({ name }) => name).sort()).toEqual(['.mcp.json', 'CLAUDE.md', 'index.js', 'run'])
      expect((await stat(join(target, 'run'))).mode & 0o777).toBe(0o755)
      await symlink('/etc/passwd', join(dir, 'sub-link'))
      await expect(deploy({ entries: readLocalFolder(dir) })).rejects.toEqual(
        refused('agent_invalid', /"sub-link" is a link/),
      )
      await expect(deploy({ entries: readLocalFolder('relative') })).rejects.toEqual(
        refused('agent_invalid', /absolute/),
      )
      await expect(deploy({ entries: readLocalFolder(join(dir, 'none')) })).rejects.toEqual(
        refused('agent_invalid', /not a folder/),
      )
      expect(await readdir(join(store.dataDir, 'agents', '.staging'))).toEqual([])
    })
  })
}

test.each([
  ['../x', 'a'.repeat(64)],
  ['.staging', 'a'.repeat(64)],
  ['default', '../x'],
  ['default', 'A'.repeat(64)],
])('no folder for tenant %s and hash %s', (tenantId, hash) => {
  expect(() => agentVersionDir('/data', tenantId, hash)).toThrow()
})

async function insertSession({ db }: AgentStore, status: SessionRow['status']) {
  await db
    .insertInto('sessions')
    .values(sessionRow({ id: '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10', agent_name: 'bot', status }))
    .execute()
}
