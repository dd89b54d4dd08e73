import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import tls from 'node:tls'
import fc from 'fast-check'
import { expect, onTestFinished, test } from 'vitest'
import { parseClientHello } from './client-hello.ts'

/** What Node's own TLS sends first. */
async function realHello(options: tls.ConnectionOptions): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = tls.connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port, ...options })
  client.on('error', () => {})
  const [socket] = await once(server, 'connection')
  onTestFinished(() => {
    socket.destroy()
    client.destroy()
    server.close()
  })
  const [chunk] = (await once(socket, 'data')) as [Buffer]
  return chunk
}

const uint16 = (value: number) => Buffer.from([value >> 8, value & 255])
const vector16 = (bytes: Buffer) => Buffer.concat([uint16(bytes.length), bytes])
const extension = (type: number, data: Buffer) => Buffer.concat([uint16(type), vector16(data)])
const nameExtension = (...names: string[]) =>
  extension(
    0,
    vector16(Buffer.concat(names.map((name) => Buffer.concat([Buffer.of(0), vector16(Buffer.from(name))])))),
  )

function handshake(...extensions: Buffer[]): Buffer {
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    Buffer.of(0),
    vector16(Buffer.from([0x1a, 0x1a, 0x13, 1])),
    Buffer.from([1, 0]),
    ...(extensions.length > 0 ? [vector16(Buffer.concat(extensions))] : []),
  ])
  return Buffer.concat([Buffer.from([1, 0]), vector16(body)])
}

const record = (payload: Buffer, type = 22) => Buffer.concat([Buffer.from([type, 3, 1]), vector16(payload)])

test.each([['TLSv1.2'], ['TLSv1.3']] as const)(
  'the name in a real ClientHello of %s is read',
  async (version) => {
    const hello = await realHello({ servername: 'api.example.com', maxVersion: version })
    expect(parseClientHello(hello)).toEqual({ serverName: 'api.example.com' })
  },
)

test('a real ClientHello without a name is one', async () => {
  expect(parseClientHello(await realHello({}))).toEqual({})
})

test('every prefix of a ClientHello asks for more, and what follows it does not matter', async () => {
  const hello = await realHello({ servername: 'api.example.com' })
  for (let length = 0; length < hello.length; length++)
    expect(parseClientHello(hello.subarray(0, length))).toBe('need more')
  const withEarlyData = Buffer.concat([hello, record(Buffer.from([1]), 20), record(Buffer.alloc(9), 23)])
  expect(parseClientHello(withEarlyData)).toEqual({ serverName: 'api.example.com' })
})

test('a ClientHello spread over records is put together', () => {
  const message = handshake(nameExtension('a.test'))
  for (let cut = 1; cut < message.length; cut++) {
    const bytes = Buffer.concat([record(message.subarray(0, cut)), record(message.subarray(cut))])
    expect(parseClientHello(bytes)).toEqual({ serverName: 'a.test' })
  }
  const crumbs = [...message].map((byte) => record(Buffer.of(byte)))
  expect(parseClientHello(Buffer.concat(crumbs))).toBe('not tls')
})

test('extensions nobody knows are passed over', () => {
  const grease = extension(0x1a1a, Buffer.alloc(0))
  const encrypted = extension(0xfe0d, Buffer.alloc(200, 1))
  const hello = handshake(grease, encrypted, nameExtension('a.test'), extension(0xdada, Buffer.of(0)))
  expect(parseClientHello(record(hello))).toEqual({ serverName: 'a.test' })
})

test.each([
  ['HTTP', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
  ['SSH', Buffer.from('SSH-2.0-x\r\n')],
  ['SSL 2', Buffer.from([0x80, 0x2e, 1, 0, 2])],
  ['an alert', record(Buffer.from([2, 49]), 21)],
  ['a ServerHello', record(Buffer.from([2, 0, 0, 1, 0]))],
  ['two names in one extension', record(handshake(nameExtension('a.test', 'b.test')))],
  ['two extensions with a name', record(handshake(nameExtension('a.test'), nameExtension('b.test')))],
  ['a name of another kind', record(handshake(extension(0, vector16(Buffer.from([1, 0, 1, 65])))))],
  ['a length beyond the end', record(handshake(Buffer.from([0, 0, 255, 255, 0])))],
  ['an interrupted message', Buffer.concat([record(handshake().subarray(0, 9)), record(Buffer.of(1), 20)])],
])('%s is not a ClientHello', (_, bytes) => {
  expect(parseClientHello(bytes)).toBe('not tls')
})

test('a ClientHello without extensions has no name', () => {
  expect(parseClientHello(record(handshake()))).toEqual({})
})

test('no bytes make it throw', async () => {
  const hello = await realHello({ servername: 'api.example.com' })
  const random = fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes))
  const framed = random.map((bytes) => record(bytes))
  const broken = fc
    .array(fc.tuple(fc.nat(hello.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 })
    .map((changes) => {
      const bytes = Buffer.from(hello)
      for (const [index, value] of changes) bytes[index] = value
      return bytes
    })
  const asHello = random.map((bytes) => record(Buffer.concat([Buffer.from([1, 0]), vector16(bytes)])))
  fc.assert(
    fc.property(fc.oneof(random, framed, broken, asHello), (bytes) => {
      const result = parseClientHello(bytes)
      expect(typeof result === 'object' || result === 'need more' || result === 'not tls').toBe(true)
    }),
    { numRuns: 2_000 },
  )
})
