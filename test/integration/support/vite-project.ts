import { existsSync } from 'node:fs'
import { readdir, readFile, realpath, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { type TarEntry, tar } from './tar.ts'

export const VITE = 'node_modules/vite/bin/vite.js'

const PAGE = `<!doctype html>
<title>Inside</title>
<main></main>
<script type="module" src="/main.js"></script>
`
const MAIN = `import './style.css'
import { message } from './message.js'

const show = (text) => { document.querySelector('main').textContent = text }
show(message)
import.meta.hot.accept('./message.js', (changed) => show(changed.message))
`
export const messageModule = (text: string) => `export const message = ${JSON.stringify(text)}\n`
export const style = (color: string) => `main { font: 48px sans-serif; padding: 1em; background: ${color} }\n`

/** A project whose page shows what `message.js` says, with Vite itself: inside there is no network to get it from. */
export async function viteArchive(message: string): Promise<Uint8Array<ArrayBuffer>> {
  const archive = tar(
    { name: 'package.json', content: '{ "type": "module" }' },
    { name: 'index.html', content: PAGE },
    { name: 'main.js', content: MAIN },
    { name: 'message.js', content: messageModule(message) },
    { name: 'style.css', content: style('gold') },
    ...(await packageEntries('vite', import.meta.dirname)),
  )
  return new Uint8Array(archive)
}

/** A package as it is installed here and all that it needs, side by side. */
async function packageEntries(name: string, from: string, seen = new Set<string>()): Promise<TarEntry[]> {
  const folder = findPackage(name, from)
  // Optional ones are for other platforms, most of them.
  if (folder === undefined || seen.has(name)) return []
  seen.add(name)
  const real = await realpath(folder)
  const manifest = JSON.parse(await readFile(join(real, 'package.json'), 'utf8')) as Manifest
  const needed = Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })
  const entries = await fileEntries(real, `node_modules/${name}`)
  for (const other of needed) entries.push(...(await packageEntries(other, real, seen)))
  return entries
}

interface Manifest {
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
}

function findPackage(name: string, from: string): string | undefined {
  const folders = createRequire(join(from, 'package.json')).resolve.paths(name) ?? []
  return folders.map((folder) => join(folder, name)).find((folder) => existsSync(folder))
}

async function fileEntries(folder: string, name: string): Promise<TarEntry[]> {
  const paths = await readdir(folder, { recursive: true })
  const entries: TarEntry[] = []
  for (const path of paths.filter((each) => !/\.(d\.[cm]?ts|map|md)$/.test(each)))
    if ((await stat(join(folder, path))).isFile())
      entries.push({ name: `${name}/${path}`, content: await readFile(join(folder, path)) })
  return entries
}
