/** The first message of TLS, as far as it is told in the clear. */
export interface ClientHello {
  serverName?: string
}

/** A ClientHello is one or two kilobytes; more is not waited for. */
export const MAX_CLIENT_HELLO_BYTES = 16 * 1024

/** A message may be spread over records, but not so thinly that reading it is work. */
const MAX_RECORDS = 32

const HANDSHAKE_RECORD = 22
const CLIENT_HELLO = 1
const SERVER_NAME_EXTENSION = 0
const HOST_NAME = 0

/**
 * Reads the server name from the first bytes of a connection. Never throws: anything but a well-formed ClientHello
 * is `not tls`. With Encrypted ClientHello this is the outer name, the one the network sees.
 */
export function parseClientHello(bytes: Buffer): 'need more' | 'not tls' | ClientHello {
  const fragments: Buffer[] = []
  let rest = bytes
  while (isHandshakeRecord(rest) && rest.length >= 5 && fragments.length < MAX_RECORDS) {
    const end = 5 + rest.readUInt16BE(3)
    fragments.push(rest.subarray(5, end))
    rest = rest.subarray(end)
  }
  const hello = readHandshake(Buffer.concat(fragments))
  // Other records may follow a whole message (early data), but not interrupt it.
  const mayContinue = isHandshakeRecord(rest) && fragments.length < MAX_RECORDS
  return hello === 'need more' && !mayContinue ? 'not tls' : hello
}

/** As far as it can be seen yet; every version says 3 there, 1.3 too. */
function isHandshakeRecord([type = HANDSHAKE_RECORD, version = 3]: Buffer): boolean {
  return type === HANDSHAKE_RECORD && version === 3
}

function readHandshake(message: Buffer): 'need more' | 'not tls' | ClientHello {
  if (message.length > 0 && message[0] !== CLIENT_HELLO) return 'not tls'
  if (message.length < 4) return 'need more'
  const length = message.readUIntBE(1, 3)
  if (message.length < 4 + length) return 'need more'
  return readHello(new Reader(message.subarray(4, 4 + length)))
}

function readHello(hello: Reader): 'not tls' | ClientHello {
  hello.take(2 + 32) // Version and random.
  hello.vector(1) // Session id.
  hello.vector(2) // Cipher suites.
  hello.vector(1) // Compression methods.
  if (hello.isBroken) return 'not tls'
  if (hello.isAtEnd) return {}
  const extensions = new Reader(hello.vector(2))
  const names: string[] = []
  while (!extensions.isAtEnd && !extensions.isBroken) {
    const type = extensions.uint(2)
    const data = new Reader(extensions.vector(2))
    if (type !== SERVER_NAME_EXTENSION) continue
    const list = new Reader(data.vector(2))
    const isHostName = list.uint(1) === HOST_NAME
    names.push(list.vector(2).toString('latin1'))
    if (!isHostName || list.isBroken || !list.isAtEnd || data.isBroken || !data.isAtEnd) return 'not tls'
  }
  // Two names would let the server choose the one that was not checked.
  if (hello.isBroken || !hello.isAtEnd || extensions.isBroken || names.length > 1) return 'not tls'
  return names[0] === undefined ? {} : { serverName: names[0] }
}

/** Reads forwards; past the end it is broken and gives nothing. */
class Reader {
  readonly #bytes: Buffer
  #offset = 0
  isBroken = false

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get isAtEnd(): boolean {
    return this.#offset === this.#bytes.length
  }

  take(length: number): Buffer {
    if (this.#offset + length > this.#bytes.length) this.isBroken = true
    if (this.isBroken) return Buffer.alloc(0)
    this.#offset += length
    return this.#bytes.subarray(this.#offset - length, this.#offset)
  }

  uint(size: number): number {
    const bytes = this.take(size)
    return bytes.length === size ? bytes.readUIntBE(0, size) : 0
  }

  /** Bytes that their own length precedes. */
  vector(lengthSize: number): Buffer {
    return this.take(this.uint(lengthSize))
  }
}
