import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isAshError } from '@ash-ai/shared'
import { expect } from 'vitest'

const SWAP_MS = 1000

/** A workspace, and beside it a folder `outside` that nothing in it may lead to. */
export class HostileWorkspace {
  readonly dir: string
  readonly root: string
  readonly outside: string

  private constructor(dir: string) {
    this.dir = dir
    this.root = join(dir, 'workspace')
    this.outside = join(dir, 'outside')
  }

  static async create(): Promise<HostileWorkspace> {
    const made = new HostileWorkspace(await mkdtemp(join(tmpdir(), 'ash-files-')))
    await mkdir(join(made.outside, 'sub'), { recursive: true })
    await mkdir(made.root)
    await writeFile(join(made.outside, 'secret.txt'), 'outside')
    await writeFile(join(made.outside, 'sub', 'deep.txt'), 'outside')
    return made
  }

  at(path: string): string {
    return join(this.root, path)
  }

  async expectOutsideUntouched(): Promise<void> {
    const { outside } = this
    const paths = await readdir(outside, { recursive: true })
    expect(paths.sort()).toEqual(['secret.txt', 'sub', 'sub/deep.txt'])
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('outside')
    expect(await readFile(join(outside, 'sub', 'deep.txt'), 'utf8')).toBe('outside')
  }

  /** Does `work` over and over while `folder` is swapped for a link to `outside`; both outcomes must be seen. */
  async whileSwapping(work: () => Promise<unknown>): Promise<void> {
    await mkdir(this.at('folder'), { recursive: true })
    await symlink(this.outside, this.at('link'))
    const script = fileURLToPath(new URL('./swap-loop.ts', import.meta.url))
    const child = spawn(process.execPath, [script, this.root, String(SWAP_MS)], { stdio: 'inherit' })
    const exited = once(child, 'exit')
    const seen = { done: 0, refused: 0 }
    while (child.exitCode === null) {
      try {
        await work()
        seen.done++
      } catch (error) {
        const codes = ['path_invalid', 'file_not_found', 'file_exists'] as const
        expect(codes.some((code) => isAshError(error, code)) ? 'refused' : error).toBe('refused')
        seen.refused++
      }
    }
    expect(await exited).toEqual([0, null])
    expect(Math.min(seen.done, seen.refused)).toBeGreaterThan(10)
    await this.expectOutsideUntouched()
  }

  async remove(): Promise<void> {
    await rm(this.dir, { recursive: true, force: true })
  }
}
