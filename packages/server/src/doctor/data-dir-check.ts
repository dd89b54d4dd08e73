import { access, constants, realpath, stat, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { assertReachable } from '@ash-ai/sandbox'
import type { Config } from '../config.ts'
import { fail, isRoot, messageOf, ok, type Verdict, warn } from './finding.ts'

const LITTLE_SPACE_GB = 2
const BYTES_PER_GB = 1e9
const ELSEWHERE = 'or set ASH_DATA_DIR to a folder of this user'

/** The data directory as the server will find or make it. Only looks. */
export async function checkDataDir({
  dataDir,
  provider,
}: Pick<Config, 'dataDir' | 'provider'>): Promise<Verdict> {
  return checkFolder(dataDir, provider)
}

/** The folder sandboxes run their programs from, where it is not part of the data directory. */
export async function checkRuntimeDir({
  runtimeDir,
  provider,
}: Pick<Config, 'runtimeDir' | 'provider'>): Promise<Verdict> {
  return checkFolder(runtimeDir, provider)
}

async function checkFolder(folder: string, provider: Config['provider']): Promise<Verdict> {
  const existing = await nearestExisting(folder)
  const blocked =
    (await findWriteProblem(existing, folder)) ?? (await findReachProblem(existing, folder, provider))
  if (blocked) return blocked
  const { bavail, bsize } = await statfs(existing)
  const freeGb = (bavail * bsize) / BYTES_PER_GB
  const state = existing === folder ? '' : ' (will be made)'
  const detail = `${folder}${state}, ${freeGb.toFixed(1)} GB free`
  if (freeGb >= LITTLE_SPACE_GB) return ok(detail)
  return warn(
    `${detail}: the programs of a sandbox alone take half a gigabyte`,
    `Make room on that disk (du -xh ${existing} | sort -h | tail), or set ASH_DATA_DIR to another`,
  )
}

/** The folder itself or the closest one above it. What may not be looked at counts as missing. */
async function nearestExisting(path: string): Promise<string> {
  const isThere = await stat(path).then(
    () => true,
    () => false,
  )
  return isThere || dirname(path) === path ? path : nearestExisting(dirname(path))
}

async function findWriteProblem(existing: string, folder: string): Promise<Verdict | undefined> {
  const { uid } = await stat(existing)
  const problem = await access(`${existing}/.`, constants.W_OK | constants.X_OK).then(
    () => undefined,
    (error: NodeJS.ErrnoException) => error.code ?? error.message,
  )
  if (problem === 'ENOTDIR') return fail(`${existing} is not a folder`, 'Set ASH_DATA_DIR to a folder')
  const self = process.getuid?.() ?? 0
  const make = `sudo install -d -o ${self} ${folder}`
  if (problem !== undefined) {
    const what = existing === folder ? 'cannot be written' : `cannot be made in ${existing}`
    return fail(
      `${folder} ${what} (${problem})`,
      isRoot() ? 'Set ASH_DATA_DIR to a folder on a writable disk' : `${make}, ${ELSEWHERE}`,
    )
  }
  // The server sets its mode, which only the owner may.
  if (existing !== folder || isRoot() || uid === self) return undefined
  return fail(`${folder} belongs to another user (${uid})`, `sudo chown ${self} ${folder}, ${ELSEWHERE}`)
}

/** Sandboxes with users of their own pass every folder above; the mode of the last the server sets itself. */
async function findReachProblem(
  existing: string,
  folder: string,
  provider: Config['provider'],
): Promise<Verdict | undefined> {
  if (!isRoot() || provider === 'process') return undefined
  const above = existing === folder ? [dirname(folder), dirname(await realpath(folder))] : [existing]
  try {
    for (const path of above) await assertReachable(path)
    return undefined
  } catch (error) {
    const [detail = '', fix] = messageOf(error).split(/ (?=Run ")/)
    return fail(detail, fix)
  }
}
