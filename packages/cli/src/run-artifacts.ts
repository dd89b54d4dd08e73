import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Execution } from '@ash-ai/sdk'
import type { Context } from './context.ts'
import { dim, green } from './output.ts'
import { countOf, sizeOf } from './quantities.ts'
import { type Parts, saveFile } from './save-file.ts'

const EXTENSIONS: Record<string, string> = {
  'image/png': 'png',
  'image/jpeg': 'jpg',
  'image/gif': 'gif',
  'image/webp': 'webp',
  'image/svg+xml': 'svg',
}

/** Files and images that a run left: into `dir`, else named. Returns the paths of what was saved. */
export async function keepArtifacts(
  context: Context,
  execution: Execution,
  dir: string | undefined,
): Promise<string[]> {
  if (!context.output.isJson) nameArtifacts(context, execution, dir === undefined)
  if (dir === undefined) return []
  const saved = [...(await saveImages(execution, dir)), ...(await saveFiles(context, execution, dir))]
  if (!context.output.isJson && saved.length > 0)
    context.output.note(green('✓'), ` Saved ${countOf(saved.length, 'file')} to ${dir}`)
  return saved
}

function nameArtifacts({ output }: Context, execution: Execution, isHinted: boolean): void {
  const images = imagesOf(execution)
  const { artifacts } = execution
  for (const { type, bytes } of images) output.note(dim(`  image  ${type}, ${sizeOf(bytes.length)}`))
  for (const { path, size, isKept } of artifacts)
    output.note(dim(`  file   ${path}, ${sizeOf(size)}${isKept ? '' : ', too large to be kept'}`))
  if (!execution.artifactsComplete) output.note(dim('  and more files, which are not listed'))
  if (isHinted && images.length + artifacts.length > 0) output.note(dim('  --artifacts <dir> saves them'))
}

async function saveImages(execution: Execution, dir: string): Promise<string[]> {
  const taken = new Set(execution.artifacts.map(({ path }) => path))
  const saved: string[] = []
  for (const { type, bytes } of imagesOf(execution)) {
    const path = freeName(taken, EXTENSIONS[type] ?? 'bin')
    taken.add(path)
    saved.push(await save([bytes], dir, path))
  }
  return saved
}

function freeName(taken: ReadonlySet<string>, extension: string): string {
  for (let number = 1; ; number++) {
    const name = `result-${number}.${extension}`
    if (!taken.has(name)) return name
  }
}

async function saveFiles({ client, signal }: Context, execution: Execution, dir: string): Promise<string[]> {
  const saved: string[] = []
  for (const { path } of execution.artifacts.filter(({ isKept }) => isKept)) {
    // Refuses a path that leads elsewhere, so that nothing is written outside of `dir`.
    const parts = await client.executions.download(execution.sessionId, execution.id, path, { signal })
    saved.push(await save(parts, dir, path))
  }
  return saved
}

async function save(parts: Parts, dir: string, path: string): Promise<string> {
  const file = join(dir, path)
  await mkdir(dirname(file), { recursive: true })
  await saveFile(parts, file)
  return file
}

/** One of each rich result: they are the same picture. */
function imagesOf({ results }: Execution): { type: string; bytes: Buffer }[] {
  return results.flatMap(({ data }) => {
    const type = Object.keys(EXTENSIONS).find((known) => typeof data[known] === 'string')
    if (type === undefined) return []
    const bytes = Buffer.from(String(data[type]), type === 'image/svg+xml' ? 'utf8' : 'base64')
    return [{ type, bytes }]
  })
}
