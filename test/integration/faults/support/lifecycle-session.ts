import { rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { sessionDirs } from '@ash-ai/sandbox'
import { unmountBelow } from '@ash-ai/sandbox/testing'
import { expect } from 'vitest'
import type { TestServer } from '../../support/test-server.ts'
import type { PacedTurn } from './paced-turn.ts'
import { readTree, type SessionTree, without } from './session-tree.ts'
import { sqliteLog } from './stored-log.ts'

/** Of every kind, with one file of several parts, and names that are not UTF-8. */
const FIRST = (mark: string) => `set -e
mkdir -p deep/er/est empty shut
echo ${mark} one > deep/one.txt
echo ${mark} two > deep/er/two.txt
echo ${mark} three > deep/er/est/three.txt
seq -f '${mark} %.0f' 1 150000 > big.bin
ln deep/one.txt hard.txt
ln -s deep/er link
ln -s /etc/passwd outside
ln -s nowhere dangling
echo odd > "$(printf 'odd\\n\\377name')"
: > nothing
chmod 700 deep/er/two.txt
chmod 400 deep/er/est/three.txt
chmod 711 shut
echo ${mark} > CLAUDE.md
mkdir -p ~/kept
echo ${mark} > ~/kept/note
ln ~/kept/note ~/linked`

/** Whatever was something is now something else. */
const SECOND = (mark: string) => `set -e
echo ${mark} again > deep/er/two.txt
rm -f deep/er/est/three.txt
rmdir deep/er/est
mv deep/one.txt moved.txt
rm link && mkdir link && echo ${mark} inside > link/file
rmdir empty && ln -s deep empty
printf '${mark} middle' | dd of=big.bin bs=1 seek=1500000 conv=notrunc status=none
chmod 755 shut
echo ${mark} more >> ~/kept/note`

/** A session with files and a conversation, and what is known of both. */
export class LifecycleSession {
  readonly server: TestServer
  readonly mark: string
  id = ''
  /** As they were when the first checkpoint was made, and after that. */
  first: SessionTree = {}
  second: SessionTree = {}
  firstCheckpoint = ''
  /** What the session may have now: nothing else, and no mixture. */
  allowed: SessionTree[] = []
  /** Sessions that were acknowledged beside this one, and what they have. */
  readonly others = new Map<string, SessionTree>()

  static async create(server: TestServer, mark: string): Promise<LifecycleSession> {
    const session = new LifecycleSession(server, mark)
    session.id = (await server.client.sessions.create({ agent: 'zebra' })).id
    await session.run(FIRST(mark))
    await session.turn()
    session.firstCheckpoint = (await server.client.sessions.pause(session.id)).checkpointId ?? ''
    session.first = await session.tree()
    await session.run(SECOND(mark))
    session.second = await session.tree()
    session.allowed = [session.second]
    return session
  }

  private constructor(server: TestServer, mark: string) {
    this.server = server
    this.mark = mark
  }

  get client() {
    return this.server.client
  }

  async run(command: string, sessionId = this.id): Promise<string> {
    const { exitCode, stdout, stderr } = await this.client.sessions.exec(sessionId, { command })
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
    return stdout
  }

  async turn(sessionId = this.id): Promise<void> {
    const turn: PacedTurn = { mark: this.mark, pieces: 2, pieceChars: 40, paceMs: 0 }
    await this.client.sessions.send(sessionId, JSON.stringify(turn)).text()
  }

  tree(sessionId = this.id): Promise<SessionTree> {
    return readTree(this.server.dataDir, sessionId)
  }

  /** Each checkpoint has, whole, what the session had at one time; the known ones what they had. */
  async expectCheckpoints(known: ReadonlyMap<string, SessionTree>, times: SessionTree[]): Promise<void> {
    const { checkpoints } = await this.client.checkpoints.list(this.id)
    expect(checkpoints.map(({ id }) => id)).toEqual(expect.arrayContaining([...known.keys()]))
    for (const { id } of checkpoints) {
      const fork = await this.client.sessions.fork(this.id, { checkpointId: id })
      // The first write restores the files, without a sandbox.
      await this.client.files.write(fork.id, 'touch', '')
      const tree = without(await this.tree(fork.id), 'touch')
      expectOneOf(tree, known.has(id) ? [known.get(id) ?? {}] : times, `checkpoint ${id}`)
      await this.client.sessions.end(fork.id)
    }
  }

  /** No gap, no turn without its one end, and the last word on the session is that it is paused. */
  async expectWholeLog(sessionId: string, when: string): Promise<void> {
    const log = await sqliteLog(this.server.dataDir)(sessionId)
    const first = log[0]?.seq ?? 1
    expect(
      log.map(({ seq }) => seq),
      when,
    ).toEqual(log.map((_, index) => first + index))
    const turns = log.filter(({ type }) => type === 'turn').map(({ turnId }) => turnId)
    const ends = log.filter(({ type, turnId }) => turnId !== null && (type === 'done' || type === 'error'))
    expect(
      ends.map(({ turnId }) => turnId),
      when,
    ).toEqual(turns)
    const status = log.findLast(({ type }) => type === 'status')
    // A fork that was never used has none of its own.
    if (status) expect(JSON.parse(status.data), when).toMatchObject({ status: 'paused' })
  }
}

/** As if the session came to a host that has never seen it. Only while the server is down. */
export async function loseFolders({ dataDir }: TestServer, sessionId: string): Promise<void> {
  const { root } = sessionDirs(dataDir, sessionId)
  await unmountBelow(dirname(root))
  await rm(root, { recursive: true, force: true })
}

export function expectOneOf(tree: SessionTree, allowed: SessionTree[], when: string): void {
  const isAllowed = allowed.some((each) => JSON.stringify(each) === JSON.stringify(tree))
  // The difference to the nearest says more than that there is one.
  if (!isAllowed) expect(tree, when).toEqual(nearest(tree, allowed))
}

function nearest(tree: SessionTree, allowed: SessionTree[]): SessionTree | undefined {
  const differences = (other: SessionTree) =>
    new Set([...Object.keys(tree), ...Object.keys(other)].filter((path) => tree[path] !== other[path])).size
  return allowed.toSorted((a, b) => differences(a) - differences(b))[0]
}
