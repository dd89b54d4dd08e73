import {
  chmodSync,
  closeSync,
  ftruncateSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  openSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeSync,
} from 'node:fs'
import { DeepPaths } from '../deep-paths.ts'
import { comparePaths, joinPath, MAX_PATH_BYTES, toBytes } from '../entry-path.ts'
import { CHUNK_BYTES } from '../manifest-entry.ts'

/** Numbers that are the same for the same seed: from 0 up to, not including, `limit`. */
export type Random = (limit: number) => number

export function seededRandom(seed: number): Random {
  let state = seed
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit
  }
}

const oneOf = <Item>(random: Random, items: readonly Item[]): Item => {
  const item = items[random(items.length)]
  if (item === undefined) throw new Error('nothing to choose from')
  return item
}

interface Grown {
  folders: string[]
  files: string[]
  links: string[]
  /** One inside the other. */
  deep: string[]
}

/** Below `root`, which exists, everything that a sandbox may make: all kinds of names, modes, times and contents. */
export function growTree(root: string, random: Random, count: number, isDeep = false): Grown {
  const [paths, linkPaths] = [new DeepPaths(root), new DeepPaths(root)]
  const grown: Grown = { folders: [''], files: [], links: [], deep: [] }
  try {
    for (let made = 0; made < count; made++) {
      const path = joinPath(oneOf(random, grown.folders), randomName(random, made))
      if (path.length <= MAX_PATH_BYTES) growOne(paths, linkPaths, grown, random, path)
    }
    if (isDeep) growDeep(paths, grown, random)
    for (const file of grown.files) finish(paths, random, file)
    const folders = [...grown.folders, ...grown.deep].sort(comparePaths)
    for (const folder of folders.toReversed()) finish(paths, random, folder)
    return grown
  } finally {
    paths.close()
    linkPaths.close()
  }
}

function growOne(paths: DeepPaths, linkPaths: DeepPaths, grown: Grown, random: Random, path: string): void {
  const kind = oneOf(random, ['folder', 'file', 'file', 'file', 'link', 'hardlink'] as const)
  if (kind === 'folder') {
    mkdirSync(paths.at(path))
    grown.folders.push(path)
  } else if (kind === 'link') {
    symlinkSync(toBytes(randomTarget(random)), paths.at(path))
    const time = randomTime(random)
    lutimesSync(paths.at(path), time, time)
    grown.links.push(path)
  } else if (kind === 'hardlink' && grown.files.length > 0) {
    linkSync(linkPaths.at(oneOf(random, grown.files)), paths.at(path))
    grown.files.push(path)
  } else {
    writeRandom(paths, path, random)
    grown.files.push(path)
  }
}

/** Down to the longest path there is, by the shortest names or the longest. */
function growDeep(paths: DeepPaths, grown: Grown, random: Random): void {
  const name = oneOf(random, ['d', '\xc3\xbc'.repeat(100), 'x'.repeat(255)])
  for (let path = name; path.length <= MAX_PATH_BYTES; path = joinPath(path, name)) {
    mkdirSync(paths.at(path))
    grown.deep.push(path)
  }
}

function finish(paths: DeepPaths, random: Random, path: string): void {
  const time = randomTime(random)
  chmodSync(paths.at(path), random(0o10000))
  utimesSync(paths.at(path), time, time)
}

/** Microseconds between 1970 and 2038. */
const randomTime = (random: Random) => random(2 ** 31) + random(1_000_000) / 1e6

function randomName(random: Random, unique: number): string {
  const stem = oneOf(random, [
    'plain',
    '.hidden',
    'with space',
    '-flag',
    'line\nbreak',
    'quote"\\',
    Buffer.from('ünïcode-日本').toString('latin1'),
    'not-utf8-\xff\xfe\x80',
    'x'.repeat(240),
  ])
  return `${stem}${oneOf(random, ['', '.', '!', '~', '0'])}${unique}`
}

const randomTarget = (random: Random) =>
  oneOf(random, ['missing', '../..', '/etc/passwd', '.', 'bytes-\xff', 'x'.repeat(4000)])

const SIZES = [
  0,
  1,
  100,
  5000,
  5000,
  70_000,
  CHUNK_BYTES - 1,
  CHUNK_BYTES,
  CHUNK_BYTES + 1,
  2 * CHUNK_BYTES + 500,
]

/** A few pieces of data somewhere, holes between them, sometimes zeros that are written. */
function writeRandom(paths: DeepPaths, path: string, random: Random): void {
  const size = oneOf(random, SIZES)
  const fd = openSync(paths.at(path), 'w')
  try {
    if (random(4) > 0) writePieces(fd, size, random)
    ftruncateSync(fd, random(10) === 0 ? size + 5 * CHUNK_BYTES : size)
  } finally {
    closeSync(fd)
  }
}

function writePieces(fd: number, size: number, random: Random): void {
  if (size === 0) return
  const pieces = random(3) + 1
  for (let piece = 0; piece < pieces; piece++) {
    const bytes = Buffer.alloc(
      random(2) === 0 ? size : Math.min(size, 700),
      random(5) === 0 ? 0 : random(256),
    )
    bytes.writeUInt8(random(256), random(bytes.length))
    writeSync(fd, bytes, 0, bytes.length, random(size))
  }
}

/** Some files written again, cut or grown, some entries gone, some new. */
export function changeTree(root: string, grown: Grown, random: Random): void {
  const paths = new DeepPaths(root)
  try {
    for (const file of grown.files) if (random(3) === 0) changeFile(paths, file, random)
    for (const path of [...grown.folders, ...grown.files, ...grown.links]) {
      if (path !== '' && random(12) === 0)
        rmSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, 'latin1')]), {
          recursive: true,
          force: true,
        })
    }
  } finally {
    paths.close()
  }
  mkdirSync(`${root}/added`)
  growTree(`${root}/added`, random, 8)
}

/** Also with the size and the time it had before. */
function changeFile(paths: DeepPaths, file: string, random: Random): void {
  chmodSync(paths.at(file), 0o600)
  const fd = openSync(paths.at(file), 'r+')
  try {
    if (random(3) === 0) ftruncateSync(fd, random(2 * CHUNK_BYTES))
    else writeSync(fd, Buffer.alloc(random(3000) + 1, random(256)), 0, undefined, random(CHUNK_BYTES))
  } finally {
    closeSync(fd)
  }
  if (random(2) === 0) utimesSync(paths.at(file), 1_000_000_000, 1_000_000_000)
}
