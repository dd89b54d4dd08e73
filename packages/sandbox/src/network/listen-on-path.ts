import { chmod, chown, open, rm } from 'node:fs/promises'
import type { Server } from 'node:net'
import { basename, dirname, join } from 'node:path'

const MAX_SOCKET_PATH_BYTES = 107

/**
 * Listens on a Unix socket that only its owner may connect to. A socket address holds 107 bytes, which a data
 * directory easily exceeds: then the folder is named through a descriptor. Returns what removes the socket.
 */
export async function listenOnPath(
  server: Server,
  socketPath: string,
  owner?: { uid: number; gid: number } | undefined,
): Promise<() => Promise<void>> {
  await rm(socketPath, { force: true })
  const isShort = Buffer.byteLength(socketPath) <= MAX_SOCKET_PATH_BYTES
  const folder = isShort ? undefined : await open(dirname(socketPath), 'r')
  const address = folder ? join(`/proc/self/fd/${folder.fd}`, basename(socketPath)) : socketPath
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(address, resolve)
  }).catch(async (error: unknown) => {
    await folder?.close()
    throw error
  })
  await chmod(socketPath, 0o600)
  if (owner) await chown(socketPath, owner.uid, owner.gid)
  return async () => {
    await folder?.close()
    await rm(socketPath, { force: true })
  }
}
