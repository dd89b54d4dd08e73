import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import { resolveHost } from './resolve-host.ts'

const RECORDS: Record<number, { type: number; address: number[] }> = {
  1: { type: 1, address: [93, 184, 216, 34] },
  28: { type: 28, address: [0x26, 6, 0x47, 0, ...Array<number>(11).fill(0), 1] },
}

/** A DNS server that knows one name, with an address of each kind. */
async function startDns(): Promise<{ server: string; asked: () => number }> {
  const socket: Socket = createSocket('udp4')
  let asked = 0
  socket.on('message', (query, from) => {
    asked++
    const end = query.indexOf(0, 12) + 5
    const isKnown = query.subarray(12, end).includes('known')
    const record = isKnown ? RECORDS[query.readUInt16BE(end - 4)] : undefined
    const header = Buffer.from(query.subarray(0, 12))
    header.writeUInt16BE(isKnown ? 0x8180 : 0x8183, 2)
    header.writeUInt16BE(record ? 1 : 0, 6)
    header.writeUInt16BE(0, 10)
    const answer = record
      ? [0xc0, 12, 0, record.type, 0, 1, 0, 0, 0, 9, 0, record.address.length, ...record.address]
      : []
    socket.send(
      Buffer.concat([header, query.subarray(12, end), Buffer.from(answer)]),
      from.port,
      from.address,
    )
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  onTestFinished(() => void socket.close())
  return { server: `127.0.0.1:${socket.address().port}`, asked: () => asked }
}

test('a name becomes all its addresses, of both kinds', async () => {
  const dns = await startDns()
  const addresses = await resolveHost('known.test', { servers: [dns.server] })
  expect(addresses).toEqual(['93.184.216.34', '2606:4700::1'])
  expect(dns.asked()).toBe(2)
})

test('a name that does not exist is an error that says so', async () => {
  const { server } = await startDns()
  await expect(resolveHost('missing.test', { servers: [server] })).rejects.toMatchObject({
    code: 'ENOTFOUND',
  })
})

test('addresses and names of the hosts file are not asked for', async () => {
  const dns = await startDns()
  expect(await resolveHost('::1', { servers: [dns.server] })).toEqual(['::1'])
  expect(await resolveHost('localhost', { servers: [dns.server] })).toContain('127.0.0.1')
  expect(dns.asked()).toBe(0)
})
