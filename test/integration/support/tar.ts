const BLOCK = 512

export interface TarEntry {
  name: string | Uint8Array
  content?: string | Uint8Array
  /** The type flag: 0 file, 1 hard link, 2 symbolic link, 3 and 4 devices, 5 folder, 6 pipe, x pax header … */
  type?: string
  linkTarget?: string
  /** What the header claims, where that is not the length of the content. */
  size?: number
  mode?: number
}

/** A tar written by hand: libraries refuse to write most of what has to be refused here. */
export function tar(...entries: TarEntry[]): Buffer {
  return Buffer.concat([...entries.map(tarEntry), Buffer.alloc(2 * BLOCK)])
}

export function tarEntry({ name, content = '', type = '0', linkTarget = '', size, mode = 0o644 }: TarEntry) {
  const bytes = Buffer.from(content as string)
  const header = Buffer.alloc(BLOCK)
  Buffer.from(name as string).copy(header, 0, 0, 100)
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`
  header.write(octal(mode, 7), 100)
  header.write(octal(0, 7) + octal(0, 7), 108)
  header.write(octal(size ?? bytes.length, 11), 124)
  header.write(octal(0, 11), 136)
  header.write(`        ${type}`, 148)
  header.write(linkTarget, 157)
  header.write('ustar\x0000', 257)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return Buffer.concat([header, bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)])
}

/** A pax header, which gives the next entry fields that its own header has no room for. */
export function paxEntry(fields: Record<string, string>): TarEntry {
  const records = Object.entries(fields).map(([key, value]) => {
    const rest = ` ${key}=${value}\n`
    const digits = String(rest.length).length
    const length = rest.length + digits
    return `${String(length).length === digits ? length : length + 1}${rest}`
  })
  return { name: 'PaxHeader', type: 'x', content: records.join('') }
}
