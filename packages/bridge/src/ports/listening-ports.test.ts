import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { listListeningPorts, parseListeners } from './listening-ports.ts'

async function listen(host: string): Promise<number> {
  const server = createServer().listen(0, host)
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

test('what listens is found, with the process that does; what is to be left out is not', async () => {
  const [port, own] = [await listen('127.0.0.1'), await listen('127.0.0.1')]
  const ports = await listListeningPorts(new Set([own]))
  const { pid } = process
  expect(ports.find((each) => each.port === port)).toMatchObject({ address: '127.0.0.1', pid })
  expect(ports.find((each) => each.port === port)?.command).toMatch(/./)
  expect(ports.some((each) => each.port === own)).toBe(false)
})

const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n'
const line = (local: string, state = '0A') =>
  `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 100 0 0 10 0\n`

test.each([
  ['0100007F:0BB8', '127.0.0.1', 3000],
  ['00000000:1F90', '0.0.0.0', 8080],
  ['00000000000000000000000000000000:1F90', '::', 8080],
  ['00000000000000000000000001000000:FFFF', '::1', 65_535],
  ['0000000000000000FFFF00000100007F:0050', '127.0.0.1', 80],
  ['B80D0120000000000000000001000000:0016', '2001:db8::1', 22],
])('%s is port %s on %s', (local, address, port) => {
  expect(parseListeners(HEAD + line(local))).toEqual([{ port, address, inode: '4711' }])
})

test('connections are no listeners, and what is no line of the table is passed over', () => {
  expect(parseListeners(HEAD + line('0100007F:0BB8', '01'))).toEqual([])
  expect(parseListeners(`${HEAD}\nnonsense\n0: zz 0 0A\n`)).toEqual([])
  expect(parseListeners('')).toEqual([])
})
