import { isUtf8 } from 'node:buffer'

/** What comes before the content of an entry. Paths are Latin-1, each character a byte. */
export interface TarHeader {
  path: string
  type: 'file' | 'directory' | 'symlink' | 'hardlink'
  mode: number
  mtimeUs: number
  size: number
  target: string
}

export const BLOCK_BYTES = 512
const NAME_BYTES = 100
const TYPES = { file: '0', hardlink: '1', symlink: '2', directory: '5' }
const PAX = 'x'
const GNU_LONG_NAME = 'L'
const GNU_LONG_TARGET = 'K'
/** What eleven octal digits hold. */
const MAX_OCTAL = 0o77777777777

/** The blocks of a header, with those in front of it that say what it has no room for. */
export function encodeHeader(header: TarHeader): Buffer {
  const name = Buffer.from(header.type === 'directory' ? `${header.path}/` : header.path, 'latin1')
  const target = Buffer.from(header.target, 'latin1')
  const extras = isUtf8(name) && isUtf8(target) ? paxBlocks(header, name, target) : gnuBlocks(name, target)
  const seconds = Math.min(Math.max(0, Math.floor(header.mtimeUs / 1_000_000)), MAX_OCTAL)
  return Buffer.concat([
    extras,
    block({ name, target, type: TYPES[header.type], mode: header.mode, size: header.size, seconds }),
  ])
}

export const paddingAfter = (size: number): Buffer =>
  Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES)

export const END_OF_ARCHIVE = Buffer.alloc(2 * BLOCK_BYTES)

/** POSIX: text as UTF-8, and times to the microsecond. */
function paxBlocks({ mtimeUs }: TarHeader, name: Buffer, target: Buffer): Buffer {
  const records: Buffer[] = []
  if (needsPax(name)) records.push(paxRecord('path', name))
  if (needsPax(target)) records.push(paxRecord('linkpath', target))
  const isPlain = mtimeUs % 1_000_000 === 0 && mtimeUs >= 0 && mtimeUs / 1_000_000 <= MAX_OCTAL
  if (!isPlain) records.push(paxRecord('mtime', Buffer.from(decimalSeconds(mtimeUs))))
  return records.length === 0 ? Buffer.alloc(0) : extension(PAX, 'pax', Buffer.concat(records))
}

const needsPax = (text: Buffer) => text.length > NAME_BYTES || text.some((byte) => byte > 0x7f)

/** Its length counts itself. */
function paxRecord(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from('\n')])
  let length = rest.length
  while (length !== rest.length + String(length).length) length = rest.length + String(length).length
  return Buffer.concat([Buffer.from(String(length)), rest])
}

function decimalSeconds(us: number): string {
  const sign = us < 0 ? '-' : ''
  const digits = String(Math.abs(us)).padStart(7, '0')
  return `${sign}${digits.slice(0, -6)}.${digits.slice(-6)}`
}

/** Names that are no text keep their bytes only this way. */
function gnuBlocks(name: Buffer, target: Buffer): Buffer {
  const blocks: Buffer[] = []
  const nul = Buffer.alloc(1)
  const add = (type: string, text: Buffer) =>
    blocks.push(extension(type, '././@LongLink', Buffer.concat([text, nul])))
  if (target.length > NAME_BYTES) add(GNU_LONG_TARGET, target)
  if (name.length > NAME_BYTES) add(GNU_LONG_NAME, name)
  return Buffer.concat(blocks)
}

function extension(type: string, name: string, content: Buffer): Buffer {
  const { length: size } = content
  const header = block({
    name: Buffer.from(name),
    target: Buffer.alloc(0),
    type,
    mode: 0o644,
    size,
    seconds: 0,
  })
  return Buffer.concat([header, content, paddingAfter(size)])
}

interface Fields {
  name: Buffer
  target: Buffer
  type: string
  mode: number
  size: number
  seconds: number
}

function block({ name, target, type, mode, size, seconds }: Fields): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES)
  name.copy(header, 0, 0, NAME_BYTES)
  header.write(octal(mode, 7), 100)
  header.write(octal(0, 7), 108)
  header.write(octal(0, 7), 116)
  writeSize(header, size)
  header.write(octal(seconds, 11), 136)
  header.write(' '.repeat(8), 148)
  header.write(type, 156)
  target.copy(header, 157, 0, NAME_BYTES)
  header.write('ustar\x0000', 257)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${octal(sum, 6)}\0 `, 148)
  return header
}

const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0')

/** From 8 GiB on in binary, which every reader of today understands. */
function writeSize(header: Buffer, size: number): void {
  if (size <= MAX_OCTAL) {
    header.write(octal(size, 11), 124)
    return
  }
  header[124] = 0x80
  header.writeBigUInt64BE(BigInt(size), 128)
}
