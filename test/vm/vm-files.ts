import { existsSync } from 'node:fs'
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { lastLines } from '../../scripts/lib/steps.mjs'
import { ensurePackages, findCommand } from '../../scripts/lib/system-packages.mjs'
import { root, UserError } from '../../scripts/lib/workspace.mjs'
import { CannotRun } from './cannot-run.ts'
import { buildInitramfs } from './initramfs.ts'
import { runCommand } from './run-command.ts'

/** Ignored by git, and not open to other users of the machine as the temporary folder is. */
const CACHE = join(root, 'node_modules', '.ash-vm')
const APT_TIMEOUT_MS = 5 * 60_000
export const QEMU = 'qemu-system-x86_64'
const QEMU_PACKAGE = 'qemu-system-x86'
/** Names the newest kernel of this Debian. The cloud kernel would not do: it has no 9p. */
const KERNEL_PACKAGE = 'linux-image-amd64'

export interface VmFiles {
  kernel: string
  initramfs: string
  /** As `uname -r` says it. */
  kernelRelease: string
}

/** Installs and unpacks what a VM needs, once. Nothing of it is installed on this machine but qemu. */
export async function prepareVmFiles(): Promise<VmFiles> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new CannotRun(
      `The VM is for Linux on x64, and this is ${process.platform} on ${process.arch}. Run it on such a machine.`,
    )
  }
  await ensureQemu()
  const kernelPackage = await findKernelPackage()
  const folder = join(CACHE, kernelPackage)
  if (!existsSync(folder)) await unpackTo(folder, [kernelPackage, 'busybox-static'])
  const kernelRelease = kernelPackage.replace('linux-image-', '')
  const initramfs = join(CACHE, `${kernelRelease}.cpio`)
  await writeFile(initramfs, await buildInitramfs(folder, kernelRelease))
  return { kernel: join(folder, 'boot', `vmlinuz-${kernelRelease}`), initramfs, kernelRelease }
}

async function ensureQemu(): Promise<void> {
  await ensurePackages([{ name: QEMU_PACKAGE, isPresent: async () => hasCommand(QEMU) }]).catch(
    (error: unknown) => {
      if (!(error instanceof UserError)) throw error
      throw new CannotRun(error.message)
    },
  )
}

async function findKernelPackage(): Promise<string> {
  const remedy = 'The VM needs a kernel from a Debian mirror: mend the apt sources, then run: apt-get update'
  if (!hasCommand('apt-cache')) throw new CannotRun(`apt-cache was not found. ${remedy}`)
  const { output } = await runCommand('apt-cache', ['depends', KERNEL_PACKAGE], { timeoutMs: APT_TIMEOUT_MS })
  const name = /Depends: (linux-image-\S+)/.exec(output)?.[1]
  if (name === undefined) throw new CannotRun(`apt knows no ${KERNEL_PACKAGE}. ${remedy}`)
  return name
}

/** Fetched and unpacked, not installed: a kernel's own scripts would change how this machine boots. */
async function unpackTo(folder: string, packages: string[]): Promise<void> {
  const staging = `${folder}.new`
  await rm(staging, { recursive: true, force: true })
  await mkdir(staging, { recursive: true })
  const { code, output } = await runCommand(
    'env',
    ['-C', staging, 'apt-get', '-q', 'download', ...packages],
    {
      timeoutMs: APT_TIMEOUT_MS,
    },
  )
  if (code !== 0) {
    throw new CannotRun(
      `apt-get could not download ${packages.join(' and ')}. Run "apt-get update" and try again.\n${lastLines(output, 20)}`,
    )
  }
  for (const file of await readdir(staging)) {
    const deb = join(staging, file)
    await required('dpkg-deb', ['-x', deb, staging])
    await rm(deb)
  }
  await rename(staging, folder)
}

const hasCommand = (name: string) => findCommand(name) !== undefined

async function required(command: string, args: string[]): Promise<void> {
  const { code, output } = await runCommand(command, args, { timeoutMs: APT_TIMEOUT_MS })
  if (code !== 0) throw new CannotRun(`${command} failed. Its last words:\n${lastLines(output, 20)}`)
}
