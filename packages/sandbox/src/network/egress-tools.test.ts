import { execFile } from 'node:child_process'
import http from 'node:http'
import https from 'node:https'
import { connect, createServer } from 'node:net'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { certificate, listen, PUBLIC, startTestProxy } from '../testing/egress-fixture.ts'
import { tempDir } from '../testing/temp-dir.ts'

const run = promisify(execFile)

/** `site.test` on ports 80 and 443, the only host allowed, and a port inside that leads to the proxy. */
async function startWorld() {
  const seen: string[] = []
  const serve: http.RequestListener = (request, response) => {
    seen.push(`${'encrypted' in request.socket ? 'https' : 'http'}://${request.headers.host}${request.url}`)
    const isRefs = request.url?.includes('/info/refs')
    response.setHeader(
      'content-type',
      isRefs ? 'application/x-git-upload-pack-advertisement' : 'application/json',
    )
    response.end(isRefs ? GIT_REFS : PACKAGE)
  }
  const ports: Record<number, number> = {
    80: await listen(http.createServer(serve)),
    443: await listen(https.createServer(certificate(), serve)),
  }
  const proxy = await startTestProxy(['site.test'], {
    names: { 'site.test': [[PUBLIC]] },
    connect: (_, port) => connect({ port: ports[port] ?? 1, host: '127.0.0.1', allowHalfOpen: true }),
  })
  const inside = createServer((socket) => {
    const outside = connect(proxy.socketPath)
    socket.pipe(outside).pipe(socket)
    outside.on('error', () => socket.destroy())
  })
  const url = `http://127.0.0.1:${await listen(inside)}`
  const home = await tempDir()
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    ...Object.fromEntries(
      ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'].map((name) => [name, url]),
    ),
    NODE_USE_ENV_PROXY: '1',
    // The certificate is nobody's; these are the tools' own ways not to mind.
    NODE_TLS_REJECT_UNAUTHORIZED: '0',
    NODE_NO_WARNINGS: '1',
    GIT_SSL_NO_VERIFY: '1',
  }
  return { env, home, seen, proxy }
}

const GIT_REFS =
  '001e# service=git-upload-pack\n0000003de69de29bb2d1d6434b8b29ae775ad8c2e48c5391 refs/heads/main\n0000'
const PACKAGE = JSON.stringify({
  name: 'x',
  'dist-tags': { latest: '1.2.3' },
  versions: { '1.2.3': { name: 'x', version: '1.2.3', dist: {} } },
})
const FETCH = 'console.log(await (await fetch(process.argv[1])).text())'

const TOOLS: [string, string, (url: string) => string[], string][] = [
  ['curl', 'curl', (url) => ['-sk', `${url}/x`], '1.2.3'],
  ['Node’s fetch', process.execPath, (url) => ['--input-type=module', '-e', FETCH, `${url}/x`], '1.2.3'],
  ['git', 'git', (url) => ['ls-remote', `${url}/x`], 'refs/heads/main'],
  ['npm', 'npm', (url) => ['view', 'x', 'version', '--strict-ssl=false', '--registry', url], '1.2.3'],
]

for (const [name, command, argsFor, expected] of TOOLS) {
  test.each(['http', 'https'])(`${name} reaches an allowed host over %s and no other`, async (scheme) => {
    const { env, home, seen, proxy } = await startWorld()
    const { stdout } = await run(command, argsFor(`${scheme}://site.test`), { env, cwd: home })
    expect(stdout).toContain(expected)
    expect(new Set(seen.map((url) => new URL(url).origin))).toEqual(new Set([`${scheme}://site.test`]))
    const denied = await run(command, argsFor(`${scheme}://denied.test`), { env, cwd: home }).catch(String)
    expect(JSON.stringify(denied)).not.toContain('1.2.3')
    expect(proxy.denied[0]).toMatchObject({ host: 'denied.test', port: scheme === 'http' ? 80 : 443 })
  })
}

test('without anything injected, names come from this machine and the first address that answers is used', async () => {
  const port = await listen(http.createServer((_, response) => response.end('ok')))
  const { startEgressProxy } = await import('./egress-proxy.ts')
  const socketPath = `${await tempDir()}/egress.sock`
  for (const [host, resolve] of [
    ['localhost', undefined],
    ['127.0.0.1', undefined],
    ['localhost', async () => ['127.0.0.2', '::1', '127.0.0.1']],
  ] as const) {
    const policy = { mode: 'allowlist', hosts: [`${host}:${port}`] } as const
    const options = {
      socketPath,
      policy: () => ({ ...policy, hosts: [...policy.hosts] }),
      onDenied: () => {},
    }
    const proxy = await startEgressProxy({ ...options, resolve })
    const { stdout } = await run('curl', [
      '-s',
      '--unix-socket',
      socketPath,
      '--request-target',
      `http://${host}:${port}/`,
      `http://${host}:${port}/`,
    ])
    expect(stdout).toBe('ok')
    await proxy.close()
  }
})

test('a name that the policy names does not lead to this machine, whatever its DNS says', async () => {
  const port = await listen(http.createServer((_, response) => response.end('ok')))
  const { startEgressProxy } = await import('./egress-proxy.ts')
  const socketPath = `${await tempDir()}/egress.sock`
  for (const address of ['127.0.0.1', '::1', '169.254.169.254', '0.0.0.0', '::ffff:127.0.0.1']) {
    const proxy = await startEgressProxy({
      socketPath,
      policy: () => ({ mode: 'allowlist', hosts: [`named.test:${port}`] }),
      onDenied: () => {},
      resolve: async () => [address],
    })
    const url = `http://named.test:${port}/`
    const { stdout } = await run('curl', ['-s', '--unix-socket', socketPath, '--request-target', url, url])
    expect(stdout).toContain(`the name leads to ${address}`)
    await proxy.close()
  }
})
