import { constants } from 'node:fs'
import { chmod, chown, copyFile, cp, link, mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Owner, RuntimeSource } from '@ash-ai/sandbox'
import { build } from 'esbuild'
import { workspaceRuntime } from './runtime-source.ts'

/** What a server process needs, below `dir`; only `data` is its own. */
export interface ServerFiles {
  dir: string
  source: RuntimeSource
  /** The program, bundled into one file. */
  server: string
  agentDir: string
  dataDir: string
}

/** Another user cannot read a checkout below somebody's home, so everything is put where everybody may. */
export async function placeFiles(entry: string, user: Owner | undefined): Promise<ServerFiles> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-server-'))
  await chmod(dir, 0o711)
  const { node, bridge } = workspaceRuntime()
  const source = { node: join(dir, 'node'), bridge: join(dir, 'bridge.cjs'), claude: join(dir, 'claude') }
  await link(node, source.node).catch(() => copyFile(node, source.node, constants.COPYFILE_FICLONE))
  await copyFile(bridge, source.bridge)
  await cp(join(dirname(bridge), 'compiled'), join(dir, 'compiled'), { recursive: true })
  await writeFile(source.claude, '#!/bin/sh\n', { mode: 0o755 }) // No turn is run here.
  const agentDir = join(dir, 'agent')
  await mkdir(agentDir, { mode: 0o755 })
  await writeFile(join(agentDir, 'CLAUDE.md'), 'You are a test.\n', { mode: 0o644 })
  const server = join(dir, 'server.mjs')
  await build({
    entryPoints: [fileURLToPath(new URL(entry, import.meta.url))],
    outfile: server,
    bundle: true,
    platform: 'node',
    format: 'esm',
    conditions: ['development'],
    // CommonJS inside the bundle calls require, which an ES module does not have.
    banner: {
      js: "import { createRequire as makeRequire } from 'node:module'\nconst require = makeRequire(import.meta.url)",
    },
    logLevel: 'error',
  })
  for (const folder of ['data', 'data/sandboxes']) {
    await mkdir(join(dir, folder))
    await chmod(join(dir, folder), 0o711)
    if (user) await chown(join(dir, folder), user.uid, user.gid)
  }
  return { dir, source, server, agentDir, dataDir: join(dir, 'data') }
}
