import { cp, mkdir, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { root } from '../../scripts/lib/workspace.mjs'
import { CannotRun } from './cannot-run.ts'
import { runCommand } from './run-command.ts'
import { QEMU, type VmFiles } from './vm-files.ts'

const MEMORY_MB = 3072
const CPUS = 2
const DISK_BYTES = 8 * 1024 ** 3
const DISK_LIMIT_MS = 60_000
/** Of the checkout: what comes over 9p, and what no test reads. */
const LEFT_OUT = ['node_modules', '.git', '.test-results', 'coverage', 'data']
const KERNEL_OPTIONS = 'console=ttyS0 loglevel=3 panic=-1 cgroup_no_v1=all'
const BOOT_LIMIT_MS = 45 * 60_000

/** Boots, shows the console and returns when the VM has switched itself off. `dir` gets the reports. */
export async function bootVm({ kernel, initramfs }: VmFiles, dir: string): Promise<{ isTimeout: boolean }> {
  const disk = await makeDisk(dir)
  const { isTimeout } = await runCommand(QEMU, qemuArgs(kernel, initramfs, disk, join(dir, 'results')), {
    timeoutMs: BOOT_LIMIT_MS,
    output: 'inherit',
  })
  return { isTimeout }
}

/** With a copy of the checkout: the files of the host are cached in the guest, and may change under it. */
async function makeDisk(dir: string): Promise<string> {
  const [disk, content] = [join(dir, 'scratch.img'), join(dir, 'scratch')]
  for (const folder of ['upper', 'work', 'tmp', 'checkout/node_modules'])
    await mkdir(join(content, folder), { recursive: true })
  const left = new Set(LEFT_OUT.map((name) => join(root, name)))
  await cp(root, join(content, 'checkout'), {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !left.has(path),
  })
  await writeFile(disk, '')
  await truncate(disk, DISK_BYTES)
  const options = ['-q', '-F', '-t', 'ext4', '-O', '^has_journal', '-d', content]
  const { code, output } = await runCommand('mke2fs', [...options, disk], { timeoutMs: DISK_LIMIT_MS })
  if (code !== 0) throw new CannotRun(`mke2fs made no disk. Run: apt-get install -y e2fsprogs\n${output}`)
  return disk
}

function qemuArgs(kernel: string, initramfs: string, disk: string, results: string): string[] {
  const share = (tag: string, path: string, extra: string) =>
    `local,mount_tag=${tag},path=${comma(path)},security_model=none,multidevs=remap${extra}`
  return [
    // Software emulation: nested virtualisation is not to be had everywhere, and the kernel under test is the same.
    ...['-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', String(CPUS), '-m', String(MEMORY_MB)],
    ...['-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
    ...['-kernel', kernel, '-initrd', initramfs, '-append', KERNEL_OPTIONS],
    ...['-drive', `file=${comma(disk)},format=raw,if=virtio,cache=unsafe`],
    ...['-virtfs', share('host', '/', ',readonly=on')],
    ...['-virtfs', share('results', results, '')],
  ]
}

/** qemu's options are lists with commas. */
const comma = (path: string) => path.replaceAll(',', ',,')
