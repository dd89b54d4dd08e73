import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { loadCompiled } from './compiled-module.ts'

const run = promisify(execFile)
const SOURCE = `const { sep } = require('node:path')
exports.greet = (name) => sep + name
exports.place = [__filename, __dirname]`

async function writeModule(source = SOURCE): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-compiled-'))
  onTestFinished(() => rm(dir, { recursive: true, force: true }))
  const file = join(dir, 'module.cjs')
  await writeFile(file, source)
  return file
}

/** In a process of its own, as V8 remembers within one what it has compiled. */
async function loadApart(file: string): Promise<{ isFromCache: boolean; greeting: string }> {
  const code = `import { loadCompiled } from ${JSON.stringify(import.meta.resolve('./compiled-module.ts'))}
    const { exports, isFromCache } = loadCompiled(${JSON.stringify(file)})
    console.log(JSON.stringify({ isFromCache, greeting: exports.greet('ash') }))`
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code], { env: {} })
  return JSON.parse(stdout)
}

async function makeCacheApart(file: string): Promise<void> {
  const code = `import { writeFileSync } from 'node:fs'
    import { loadCompiled } from ${JSON.stringify(import.meta.resolve('./compiled-module.ts'))}
    writeFileSync(${JSON.stringify(`${file}.cache`)}, loadCompiled(${JSON.stringify(file)}).makeCache())`
  await run(process.execPath, ['--input-type=module', '-e', code], { env: {} })
}

test('a file is run as CommonJS and knows where it is', async () => {
  const file = await writeModule()
  const exports = (loadCompiled(file)?.exports ?? {}) as {
    greet?: (name: string) => string
    place?: string[]
  }
  expect(exports.greet?.('ash')).toBe('/ash')
  expect(exports.place).toEqual([file, dirname(file)])
})

test('a file that is not there is nothing, one that fails throws', async () => {
  expect(loadCompiled('/nonexistent/module.cjs')).toBeUndefined()
  const file = await writeModule(`throw new Error('broken on purpose')`)
  expect(() => loadCompiled(file)).toThrow('broken on purpose')
})

test('what was compiled before is used, and does the same', async () => {
  const file = await writeModule()
  expect(await loadApart(file)).toEqual({ isFromCache: false, greeting: '/ash' })
  await makeCacheApart(file)
  expect(await loadApart(file)).toEqual({ isFromCache: true, greeting: '/ash' })
})

test('a cache that is damaged or of another file is not used', async () => {
  const file = await writeModule()
  await makeCacheApart(file)
  const cache = await readFile(`${file}.cache`)
  await writeFile(`${file}.cache`, cache.subarray(0, cache.length / 2))
  expect(await loadApart(file)).toEqual({ isFromCache: false, greeting: '/ash' })
  await writeFile(`${file}.cache`, '')
  expect(await loadApart(file)).toEqual({ isFromCache: false, greeting: '/ash' })
  await writeFile(`${file}.cache`, cache)
  await writeFile(file, `${SOURCE}\nexports.greet = (name) => name`)
  expect(await loadApart(file)).toEqual({ isFromCache: false, greeting: 'ash' })
})
