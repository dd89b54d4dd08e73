import { chmod, mkdir } from 'node:fs/promises'

/** Names within a session's folder: the image, and where it is mounted. */
export const IMAGE_FILE = 'disk.img'
export const DISK_FOLDER = 'disk'

/** Makes a folder that sandbox users may search; the umask may take that bit. */
export async function openFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o711 })
  await chmod(folder, 0o711)
}
