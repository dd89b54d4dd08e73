import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { AgentDeploy } from '@ash-ai/sdk'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { base64, deployTestAgent } from './support/conversation.ts'
import { type PackageIndex, startPackageIndex } from './support/package-index.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const run = promisify(execFile)
let server: TestServer
let index: PackageIndex
beforeAll(async () => {
  index = await startPackageIndex()
  server = await startTestServer({
    env: { ASH_PIP_INDEX_URL: index.pipUrl, ASH_NPM_REGISTRY: index.npmUrl },
  })
})
afterAll(async () => {
  await server.close()
  await index.close()
})
beforeEach(() => index.closeGate())

interface LogText {
  level: string
  source: string
  text: string
}

/** What the session's log says of its set-up, up to its start, or to the first failure where it has not started. */
async function logOf(sessionId: string, on = server): Promise<LogText[]> {
  const { status } = await on.client.sessions.get(sessionId)
  const found: LogText[] = []
  for await (const event of on.client.sessions.follow(sessionId)) {
    if (event.type === 'log') found.push(event.data as unknown as LogText)
    const isEnd = status === 'error' ? found.at(-1)?.level === 'error' : event.type === 'status'
    if (isEnd) break
  }
  return found
}

const startsOf = (log: LogText[]) => log.map(({ source, text }) => `${source}: ${text.split(/\s/)[0]}`)

function deploy(name: string, config: AgentDeploy['config'], files: Record<string, string>) {
  const all = Object.entries({ 'CLAUDE.md': 'You are a test.', ...files })
  return server.client.agents.deploy({
    name,
    files: all.map(([path, text]) => ({ path, content: base64(text) })),
    ...(config && { config }),
  })
}

const exec = async (id: string, command: string, on = server) => {
  const { stdout, stderr } = await on.client.sessions.exec(id, { command, timeout: 60_000 })
  return stdout + stderr
}

const endAll = async (agent: string) => {
  const { sessions } = await server.client.sessions.list({ agent })
  await Promise.all(sessions.map(({ id }) => server.client.sessions.end(id)))
}

const layersOf = (agent: string) =>
  readdir(join(server.dataDir, 'layers', 'default', agent)).catch(() => [] as string[])

/** Sandboxes that belong to no session. */
const buildsUnderWay = async () =>
  (await readdir(join(server.dataDir, 'sandboxes'))).filter((name) => name.startsWith('layer-'))

/** Waits inside until the test opens the gate; fails where that says so. */
const atGate = () => `no_proxy= NO_PROXY= curl -sSf http://${index.host}/gate || exit 9`
const isAtGate = (times: number) =>
  eventually(
    async () => index.asked.filter((path) => path === '/gate').length,
    (count) => count >= times,
    20_000,
  )
const gateCalls = () => index.asked.filter((path) => path === '/gate').length

/** Different each time it runs. */
const STAMP = 'od -An -N16 -tx1 /dev/urandom > stamp'

describe('the layer of an agent version', () => {
  test('is built by the first session, inside, and reused by the next; startup.sh runs with each sandbox', async () => {
    await deployTestAgent(server.client, 'prepared', {
      'install.sh': `echo installing on $(hostname) as $(id -u); ${STAMP}; echo kept > ~/kept`,
      'startup.sh': 'echo started >> started.txt',
    })
    const first = await server.client.sessions.create({ agent: 'prepared' })
    const second = await server.client.sessions.create({ agent: 'prepared' })
    expect(await logOf(first.id)).toEqual([
      { level: 'info', source: 'install.sh', text: 'installing on ash as 1000\n' },
      {
        level: 'info',
        source: 'layer',
        text: expect.stringMatching(/^Built layer v1-\w+ of agent prepared/),
      },
      { level: 'info', source: 'startup.sh', text: '' },
    ])
    expect(startsOf(await logOf(second.id))).toEqual(['layer: Reused', 'startup.sh: '])
    const see = 'cat stamp ~/kept; stat -c %u stamp ~/kept . ~; echo mine >> ~/kept'
    expect(await exec(second.id, see)).toBe(await exec(first.id, see))
    await server.client.sessions.stop(second.id)
    await server.client.sessions.resume(second.id)
    expect(await exec(second.id, 'cat ~/kept started.txt')).toBe('kept\nmine\nstarted\nstarted\n')
    expect(await layersOf('prepared')).toHaveLength(1)
    expect(await buildsUnderWay()).toEqual([])
    await endAll('prepared')
  })

  test('is built once for sessions that start together', async () => {
    await deploy('together', { network: [index.host] }, { 'install.sh': `${atGate()}; ${STAMP}; echo done` })
    const before = gateCalls()
    const creating = [1, 2, 3].map(() => server.client.sessions.create({ agent: 'together' }))
    await isAtGate(before + 1)
    index.openGate(true)
    const sessions = await Promise.all(creating)
    const stamps = await Promise.all(sessions.map(({ id }) => exec(id, 'cat stamp')))
    expect(new Set(stamps).size).toBe(1)
    for (const { id } of sessions) expect(startsOf(await logOf(id))).toContainEqual('install.sh: done')
    expect(gateCalls()).toBe(before + 1)
    await endAll('together')
  })

  test('that cannot be built fails every session that waits, says why in each log, and is tried again', async () => {
    const files = { 'install.sh': `echo fetching; ${atGate()}; ${STAMP}` }
    await deploy('flaky', { network: [index.host] }, files)
    const before = gateCalls()
    const creating = [1, 2].map(() => server.client.sessions.create({ agent: 'flaky' }))
    const failing = Promise.allSettled(creating)
    await isAtGate(before + 1)
    index.openGate(false)
    for (const outcome of await failing) {
      expect(outcome).toMatchObject({
        status: 'rejected',
        reason: {
          code: 'setup_failed',
          message: expect.stringMatching(/^install\.sh of the agent ended with 9: fetching/),
        },
      })
    }
    const { sessions } = await server.client.sessions.list({ agent: 'flaky' })
    expect(sessions).toHaveLength(2)
    for (const { id, status, error } of sessions) {
      expect([status, error?.code]).toEqual(['error', 'setup_failed'])
      expect(await logOf(id)).toEqual([
        { level: 'error', source: 'install.sh', text: expect.stringContaining('503') },
      ])
    }
    expect((await server.client.health()).sandboxes.live).toBe(0)
    expect([...(await layersOf('flaky')), ...(await buildsUnderWay())]).toEqual([])

    index.closeGate()
    index.openGate(true)
    const id = sessions[0]?.id ?? ''
    await server.client.sessions.resume(id)
    expect(startsOf(await logOf(id))).toEqual([
      'install.sh: fetching',
      'install.sh: fetching',
      'layer: Built',
    ])
    await endAll('flaky')
  })

  test('that was refused a destination says which setting would allow it', async () => {
    await deployTestAgent(server.client, 'cut-out', {
      'install.sh': 'curl -sf http://example.com/ || exit 4',
    })
    const creating = server.client.sessions.create({ agent: 'cut-out' })
    await expect(creating).rejects.toMatchObject({
      code: 'setup_failed',
      message: expect.stringMatching(
        /ended with 4: it said nothing; example\.com:80 was refused, network: \["example\.com"\] would allow it$/,
      ),
    })
    const { sessions } = await server.client.sessions.list({ agent: 'cut-out' })
    for await (const event of server.client.sessions.follow(sessions[0]?.id ?? '')) {
      if (event.type !== 'egress_denied') continue
      expect(event.data).toMatchObject({ host: 'example.com' })
      break
    }
    await endAll('cut-out')
  })

  test('knows nothing of the session that asked for it, and cannot use the model', async () => {
    const { requests } = server.model
    const before = requests.length
    const ask = `curl -s -o answer -w '%{http_code}' -H "x-api-key: $ANTHROPIC_API_KEY" -H 'content-type: application/json' \
      -d '{"model":"claude-sonnet-4-5","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}' "$ANTHROPIC_BASE_URL/v1/messages"`
    await server.client.credentials.create({
      name: 'github',
      hosts: [`http://${index.host}`],
      secret: 'credential-secret',
      scheme: { type: 'bearer' },
    })
    await server.client.agents.deploy({
      name: 'nosy',
      files: Object.entries({
        'CLAUDE.md': 'x',
        'install.sh': `env > env.txt; ${ask} > status; curl -s -w '%{http_code}' http://github.credentials.ash/gate > credential`,
      }).map(([path, text]) => ({ path, content: base64(text) })),
      env: { OF_AGENT: 'agent-value' },
    })
    const { id } = await server.client.sessions.create({
      agent: 'nosy',
      env: { OF_SESSION: 'session-value' },
      credentials: ['github'],
      network: 'open',
    })
    const seen = await exec(id, 'cat env.txt')
    expect(seen).toContain('OF_AGENT=agent-value')
    expect(seen).not.toMatch(/OF_SESSION|session-value|sk-real-key|credential-secret/)
    expect(seen).not.toContain(id)
    expect(await exec(id, 'cat status')).toMatch(/^4\d\d$/)
    expect(await exec(id, 'cat credential')).toMatch(/403$/)
    const old = 'ANTHROPIC_API_KEY=$(sed -n s/^ANTHROPIC_API_KEY=//p env.txt);'
    expect(await exec(id, `${old} ${ask}`)).toBe('401')
    expect(requests.length).toBe(before)
    await endAll('nosy')
    await server.client.credentials.delete('github')
  })

  test('takes no harm from what is planted in it, nor do the sessions', async () => {
    const plant = [
      'ln -s /etc/shadow passwords; ln -s / root; ln -s ../../.. up; ln -s loop loop',
      'echo x > lends; chmod 6755 lends; mkdir group; chmod 2777 group',
      'mkfifo pipe; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'sock\')"',
      'echo one > name1; ln name1 name2',
      'truncate -s 500M holes',
      'mkdir closed; echo in > closed/file; chmod 000 closed/file closed',
      'mkdir ro; echo in > ro/file; chmod 555 ro',
      'touch -- "-rf" "$(printf \'new\\nline\')"',
    ]
    await deployTestAgent(server.client, 'planter', { 'install.sh': `set -e; ${plant.join('; ')}` })
    const ids: string[] = []
    for (let count = 0; count < 2; count++) {
      ids.push((await server.client.sessions.create({ agent: 'planter' })).id)
    }
    const layers = join(server.dataDir, 'layers')
    const find = async (...test: string[]) => (await run('find', [layers, ...test])).stdout
    expect(await find('(', '-perm', '/6000', '-o', '-type', 'p', '-o', '-type', 's', ')')).toBe('')
    expect(await find('!', '-user', String(process.getuid?.()))).toBe('')
    expect(await find('-lname', '/etc/shadow')).not.toBe('')
    const { stdout: room } = await run('du', ['-sm', layers])
    expect(Number.parseInt(room, 10)).toBeLessThan(20)
    for (const id of ids) {
      const look = [
        'readlink passwords root up loop',
        'stat -c "%a %h %U" lends group name1',
        '[ name1 -ef name2 ] && echo same',
        'ls pipe sock 2>/dev/null',
        'stat -c "%s %b" holes',
        'cat closed/file ro/file; echo more >> ro/file; rm -rf ro closed && echo removed',
        'ls | grep -c .',
      ]
      expect(await exec(id, look.join('; '))).toBe(
        '/etc/shadow\n/\n../../..\nloop\n755 1 ash\n755 2 ash\n644 2 ash\nsame\n524288000 0\nin\nin\nremoved\n14\n',
      )
    }
    await endAll('planter')
  })

  test('that is too deep to be copied is a failure of the set-up, and nothing of it stays', async () => {
    const dig = `perl -e 'my $d = "d" x 200; for (1..60) { mkdir $d or die; chdir $d or die }'`
    await deployTestAgent(server.client, 'deep', { 'install.sh': dig })
    await expect(server.client.sessions.create({ agent: 'deep' })).rejects.toMatchObject({
      code: 'setup_failed',
      message: expect.stringMatching(/^What the set-up made cannot be copied\. A path may be too long/),
    })
    expect([...(await layersOf('deep')), ...(await buildsUnderWay())]).toEqual([])
    expect(await readdir(join(server.dataDir, 'layers', '.staging'))).toEqual([])
    await endAll('deep')
  })

  test('must fit on the disk of a session', async () => {
    await deployTestAgent(server.client, 'large', {
      'install.sh': 'head -c 40000000 /dev/urandom > large',
    })
    const creating = server.client.sessions.create({ agent: 'large', limits: { diskMb: 32 } })
    await expect(creating).rejects.toMatchObject({
      code: 'disk_full',
      message: expect.stringMatching(/takes 39 MB, more than the limits\.diskMb of 32/),
    })
    const { id } = await server.client.sessions.create({ agent: 'large' })
    expect(await exec(id, 'stat -c %s large')).toBe('40000000\n')
    await endAll('large')
  })

  test('has the limits of the agent, and what they end is a failure of the set-up', async () => {
    await deploy(
      'greedy',
      { limits: { memoryMb: 256, diskMb: 32 } },
      { 'install.sh': 'head -c 60000000 /dev/zero > large' },
    )
    await expect(server.client.sessions.create({ agent: 'greedy' })).rejects.toMatchObject({
      code: 'setup_failed',
      message: expect.stringContaining('No space left'),
    })
    await endAll('greedy')
  })

  test('whose sandbox dies on the way is a failure of the set-up', async () => {
    await deployTestAgent(server.client, 'doomed', { 'install.sh': 'kill -9 -1' })
    await expect(server.client.sessions.create({ agent: 'doomed' })).rejects.toMatchObject({
      code: 'setup_failed',
      message: 'The set-up did not end: The sandbox ended unexpectedly',
    })
    expect(await buildsUnderWay()).toEqual([])
    await endAll('doomed')
  })

  test('belongs to a version: another has another, and none is left of a deleted agent', async () => {
    const install = { 'install.sh': STAMP }
    await deploy('versioned', { maxTurns: 1 }, install)
    const first = await server.client.sessions.create({ agent: 'versioned' })
    const stamp = await exec(first.id, 'cat stamp')
    for (const maxTurns of [2, 3, 4]) {
      await deploy('versioned', { maxTurns }, install)
      const { id } = await server.client.sessions.create({ agent: 'versioned' })
      expect(await exec(id, 'cat stamp')).not.toBe(stamp)
    }
    const names = (await layersOf('versioned')).map((name) => name.split('-')[0]).sort()
    expect(names).toEqual(['v2', 'v3', 'v4'])
    const old = await server.client.sessions.create({ agent: 'versioned', agentVersion: 1 })
    expect(startsOf(await logOf(old.id))).toContain('layer: Built')
    await endAll('versioned')
    await server.client.agents.delete('versioned')
    expect(await layersOf('versioned')).toEqual([])
    await deploy('versioned', { maxTurns: 1 }, install)
    const { id } = await server.client.sessions.create({ agent: 'versioned' })
    expect(await exec(id, 'cat stamp')).not.toBe(stamp)
    await endAll('versioned')
  })

  test('that a stopped server was building is no more, whole ones stay, and the next session builds it', async () => {
    await deploy('cut-off', { network: [index.host] }, { 'install.sh': `${STAMP}; ${atGate()}` })
    const whole = await layersOf('prepared')
    for (const end of ['kill', 'stop'] as const) {
      const before = gateCalls()
      const creating = server.client.sessions.create({ agent: 'cut-off' }).catch((error: Error) => error)
      await isAtGate(before + 1)
      expect(await buildsUnderWay()).toHaveLength(1)
      await server[end]()
      expect(await creating).toBeInstanceOf(Error)
      await server.start()
      expect([...(await layersOf('cut-off')), ...(await buildsUnderWay())]).toEqual([])
    }
    expect(whole).toHaveLength(1)
    expect(await layersOf('prepared')).toEqual(whole)
    index.openGate(true)
    const { id } = await server.client.sessions.create({ agent: 'cut-off' })
    expect(startsOf(await logOf(id))).toContain('layer: Built')
    await endAll('cut-off')
  })
})

describe('packages', () => {
  const packages = { pip: ['ash-demo>=1,<2'], npm: ['ash-demo@^1.0.0'] }
  const use =
    'python3 -c "import ash_demo; print(ash_demo.WORD)"; ash-demo; ash-demo-js; node -p "require(\'ash-demo\')"'

  test('are installed in the layer, before install.sh, and every session finds them', async () => {
    await deploy('packed', { packages, network: [index.host] }, { 'install.sh': use })
    const first = await server.client.sessions.create({ agent: 'packed' })
    const log = await logOf(first.id)
    expect(log.map(({ source }) => source)).toEqual(['pip', 'npm', 'install.sh', 'layer'])
    expect(log[0]?.text).toContain('Successfully installed ash-demo-1.0.0')
    const asked = index.asked.length
    const second = await server.client.sessions.create({ agent: 'packed', network: 'none' })
    const words = 'from pip\nfrom pip\nfrom npm\nfrom npm\n'
    expect(log[2]?.text).toBe(words)
    for (const { id } of [first, second]) expect(await exec(id, use)).toBe(words)
    expect(index.asked.length).toBe(asked)
    await endAll('packed')
  })

  test('need the network, and the failure names the setting', async () => {
    await deploy('offline', { packages: { pip: ['ash-demo'] } }, {})
    await expect(server.client.sessions.create({ agent: 'offline' })).rejects.toMatchObject({
      code: 'setup_failed',
      message: `The agent's network policy keeps packages.pip out of reach. Allow it in the agent's ash.json: network: ["${index.host}"]`,
    })
    await endAll('offline')
  })

  test.each(['pip', 'npm'] as const)('that %s does not find fail the start with its words', async (kind) => {
    await deploy(`absent-${kind}`, { packages: { [kind]: ['ash-nowhere'] }, network: [index.host] }, {})
    await expect(server.client.sessions.create({ agent: `absent-${kind}` })).rejects.toMatchObject({
      code: 'setup_failed',
      message: expect.stringMatching(new RegExp(`^${kind} of the agent ended with 1: [^]*ash-nowhere`)),
    })
    await endAll(`absent-${kind}`)
  })

  test.each([
    { pip: ['--index-url=http://x'] },
    { pip: ['demo @ http://x/y.whl'] },
    { npm: ["demo@'; id"] },
    { npm: ['owner/repository'] },
    { cargo: ['demo'] },
  ])('%j is refused when it is deployed', async (wrong) => {
    const config = { packages: wrong } as AgentDeploy['config']
    await expect(deploy('wrong', config, {})).rejects.toMatchObject({ code: 'validation_failed' })
  })
})

test('what the agent made of its scripts afterwards does not run', async () => {
  await deployTestAgent(server.client, 'rewriter', { 'startup.sh': 'echo original > which.txt' })
  const { id } = await server.client.sessions.create({ agent: 'rewriter' })
  await server.client.sessions.exec(id, {
    command: 'echo "echo changed > which.txt" > startup.sh; rm which.txt',
  })
  await server.client.sessions.stop(id)
  await server.client.sessions.resume(id)
  expect(await server.client.files.readText(id, 'which.txt')).toBe('original\n')
  await server.client.sessions.end(id)
})

test('a startup.sh that fails fails the start, says why, and leaves no sandbox', async () => {
  await deployTestAgent(server.client, 'broken', { 'startup.sh': 'echo no such service; exit 3' })
  const creating = server.client.sessions.create({ agent: 'broken' })
  await expect(creating).rejects.toMatchObject({
    code: 'setup_failed',
    message: expect.stringContaining('startup.sh of the agent ended with 3: no such service'),
  })
  const { sessions } = await server.client.sessions.list({ agent: 'broken' })
  expect(sessions).toMatchObject([{ status: 'error', error: { code: 'setup_failed' } }])
  expect((await server.client.health()).sandboxes.live).toBe(0)
  await endAll('broken')
})

describe('on other servers', () => {
  const install = `${STAMP}; mkdir closed; echo in > closed/file; chmod 000 closed/file closed`
  const stampOf = async (on: TestServer) => {
    const { id } = await on.client.sessions.create({ agent: 'prepared' })
    const stamp = await exec(id, 'cat stamp closed/file', on)
    const log = await logOf(id, on)
    await on.client.sessions.end(id)
    return { stamp, log: log.map(({ source }) => source) }
  }

  test('without root a layer is built and reused, also with room for one sandbox alone', async () => {
    const other = await startTestServer({
      user: { uid: 61_234, gid: 61_234 },
      env: { ASH_MAX_SANDBOXES: '1', ASH_RUNTIME_DIR: '' },
    })
    try {
      await deployTestAgent(other.client, 'prepared', { 'install.sh': install })
      const [first, second] = [await stampOf(other), await stampOf(other)]
      expect(first).toEqual({ stamp: expect.stringMatching(/in\n$/), log: ['install.sh', 'layer'] })
      expect(second).toEqual({ stamp: first.stamp, log: ['layer'] })
    } finally {
      await other.close()
    }
  })

  test('without isolation every session is set up by itself', async () => {
    const other = await startTestServer({
      env: { ASH_PROVIDER: 'process', ASH_NPM_REGISTRY: index.npmUrl },
    })
    try {
      await other.client.agents.deploy({
        name: 'prepared',
        files: Object.entries({ 'CLAUDE.md': 'x', 'install.sh': `${install}; ash-demo-js` }).map(
          ([path, text]) => ({ path, content: base64(text) }),
        ),
        config: { packages: { npm: ['ash-demo'] }, network: [index.host] },
      })
      const [first, second] = [await stampOf(other), await stampOf(other)]
      expect([first.log, second.log]).toEqual([
        ['npm', 'install.sh'],
        ['npm', 'install.sh'],
      ])
      expect(second.stamp).not.toBe(first.stamp)
      expect(await readdir(other.dataDir)).not.toContain('layers')
    } finally {
      await other.close()
    }
  })
})
