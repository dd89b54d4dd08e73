import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { MAX_RESULTS_BYTES, type MimeBundle, TABLE_TYPE } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { buildKernels, KernelProcess } from './testing/kernel-process.ts'

let kernels: string
/** The tests of values share one: each would start a process otherwise. */
let shared: KernelProcess
beforeAll(() => {
  kernels = buildKernels()
  shared = new KernelProcess('javascript', { kernels })
})
afterAll(async () => {
  await shared.stop()
  rmSync(kernels, { recursive: true })
})

function start(env: Record<string, string> = {}): KernelProcess {
  const kernel = new KernelProcess('javascript', { kernels, env })
  onTestFinished(() => kernel.stop())
  return kernel
}

const handle = (code: string, more: object = {}) => shared.run({ kind: 'handler', code, ...more })

describe('values', () => {
  test.each([
    ['1 + 1', '2', '2'],
    ['1 + 1;', '2', '2'],
    ["'ä'", '"ä"', "'ä'"],
    ['0', '0', '0'],
    ['false', 'false', 'false'],
    ["''", '""', "''"],
    ['null', 'null', 'null'],
    ['[]', '[]', '[]'],
    ['({})', '{}', '{}'],
    ['await Promise.resolve(7)', '7', '7'],
    [
      'const a1 = 1\nlet [b1, { c1 = 3 }] = [2, {}]\nvar d1 = 4\n;[a1, b1, c1, d1]',
      '[1,2,3,4]',
      '[ 1, 2, 3, 4 ]',
    ],
    ['f1(); function f1() { return 5 }', undefined, undefined],
    ['function f2() { return 5 }\nf2()', '5', '5'],
    ['class A1 { x = 6 }\n;(new A1()).x', '6', '6'],
    ["import { basename as base } from 'node:path'\nbase('/a/b')", '"b"', "'b'"],
    ["import path, * as all from 'path'\npath.sep + all.sep", '"//"', "'//'"],
    ["import 'node:fs'\n1", '1', '1'],
    ["(await import('node:path')).sep", '"/"', "'/'"],
    ["require('node:path').sep", '"/"', "'/'"],
    [
      'typeof import.meta.url + typeof import.meta.dirname + typeof __dirname',
      '"stringstringstring"',
      undefined,
    ],
    ['for (var i9 = 0; i9 < 3; i9++) await 0\ni9', '3', '3'],
    ['for (var k9 in { q: 1 }) await 0\nif (true) { var z9 = k9 }\nz9', '"q"', "'q'"],
    ['for await (const x of [1]) x\n2', '2', '2'],
    ['#!/usr/bin/node\n3', '3', '3'],
    ['const a2 = 1\nfunction q2() {}\n;[a2, typeof q2]', '[1,"function"]', undefined],
    ['const a3 = 1\nfunction q3() {}\n[2].length', '1', '1'],
    ['class K3 {}\n(4)', '4', '4'],
    ['const a4 = 5\nexport\ndefault\n() => 1\n;[a4]', '[5]', undefined],
    [
      'let [a5, ...b5] = [1, 2, 3], { c: { d5 }, ...e5 } = { c: { d5: 4 }, f: 5 }\n;[b5, d5, e5]',
      '[[2,3],4,{"f":5}]',
      undefined,
    ],
    ['with ({ a: 1 }) { a }\n010', '8', '8'],
    ['new Date(0)', '"1970-01-01T00:00:00.000Z"', '1970-01-01T00:00:00.000Z'],
    ["console.log('x')\nconst b6 = 2\nb6", '2', '2'],
    ["console.log('x')\nlet b7 = 2\nclass C7 {}\nb7", '2', '2'],
    ['await 0\nif (true) var b8 = 3\nb8', '3', '3'],
    ['await 0\n;(1 + 1)', '2', '2'],
    ['(await 3)', '3', '3'],
    ['await 0\n;(() => 4)()', '4', '4'],
    ['export default (5)\n6', '6', '6'],
    ["import.meta.resolve('fs') + import.meta.resolve('node:fs')", '"node:fsnode:fs"', undefined],
    ["import.meta.resolve('https://a.example/b')", '"https://a.example/b"', undefined],
    ['const n1 = 1 // a comment', undefined, undefined],
    ['undefined', undefined, undefined],
    ['if (true) 5', undefined, undefined],
    ['', undefined, undefined],
  ])('%j', async (code, result, text) => {
    const replies = await shared.run(code)
    expect(replies.done).toEqual({})
    expect(replies.result).toBe(result)
    if (text !== undefined)
      expect(replies.displays.at(-1)).toMatchObject({ isValue: true, data: { 'text/plain': text } })
    if (result === undefined) expect(replies.displays).toEqual([])
  })

  test.each([
    ...['10n', '() => 1', 'Symbol("s")', 'const o1 = {}; o1.o = o1; o1'],
    ...['new Map([[1, 2]])', 'new Error("e")', 'await 1, Promise.resolve(1)'],
  ])('%j is shown and is no result', async (code) => {
    const replies = await shared.run(code)
    expect(replies).toMatchObject({ displays: [{ isValue: true }], done: {} })
    expect(replies.result).toBeUndefined()
  })

  test('bindings stay, may be declared again, and functions see the new ones', async () => {
    const kernel = start()
    await kernel.run(
      'const x = 1; let y = 2; class P {}; function f() { return g() }; function g() { return "old" }',
    )
    expect((await kernel.run('[x, y, new P() instanceof P, f()]')).result).toBe('[1,2,true,"old"]')
    await kernel.run('await 0; const x = 10; let y; class P { z = 1 }; function g() { return "new" }')
    expect((await kernel.run('[x, y === undefined, new P().z, f()]')).result).toBe('[10,true,1,"new"]')
    await kernel.run('const g = () => "third"; import { sep as x } from "node:path"')
    expect((await kernel.run('[f(), x]')).result).toBe('["third","/"]')
    expect((await kernel.run('const crypto = require("crypto"); typeof crypto.createHash')).result).toBe(
      '"function"',
    )
  })

  test('packages are found from the working directory and by NODE_PATH', async () => {
    const kernel = start()
    const put = (folder: string, name: string, manifest: object, code: string) => {
      mkdirSync(join(kernel.cwd, folder, name), { recursive: true })
      writeFileSync(join(kernel.cwd, folder, name, 'package.json'), JSON.stringify({ name, ...manifest }))
      writeFileSync(join(kernel.cwd, folder, name, 'index.js'), code)
    }
    put(
      'node_modules',
      'esm-only',
      { type: 'module', exports: { import: './index.js' } },
      'export const a = 1',
    )
    put('node_modules', 'common', {}, 'exports.b = 2')
    put('elsewhere', 'far', {}, 'module.exports = { c: 3 }')
    writeFileSync(join(kernel.cwd, 'local.mjs'), 'export default 4')
    const code = `import { a } from 'esm-only'
import { b } from 'common'
import far from 'far'
import local from './local.mjs'
;[a, b, far.c, local, require('far').c, (await import('far')).default.c]`
    const { done, result } = await kernel.run({ code, env: { NODE_PATH: join(kernel.cwd, 'elsewhere') } })
    expect(done).toEqual({})
    expect(result).toBe('[1,2,3,4,3,3]')
    expect((await kernel.run("import 'not-there'")).done.error?.message).toMatch(/not-there/)
    const resolve = "import.meta.resolve('esm-only') + ' ' + import.meta.resolve('./local.mjs')"
    const { href } = pathToFileURL(kernel.cwd)
    expect((await kernel.run(resolve)).result).toBe(
      `"${href}/node_modules/esm-only/index.js ${href}/local.mjs"`,
    )
    expect((await kernel.run("import.meta.resolve('not-there')")).done.error?.message).toMatch(/not-there/)
    expect(kernel.stderr).toBe('')
    expect((await kernel.run("import { nope } from 'common'")).done.error?.message).toMatch(/'nope'/)
  })
})

describe('displays', () => {
  async function bundlesOf(code: string): Promise<MimeBundle[]> {
    const { displays, done } = await shared.run(code)
    expect(done).toEqual({})
    return displays.map(({ data }) => data)
  }

  test.each([
    ["'text'", { 'text/plain': 'text' }],
    ["{ 'text/html': '<b>' }", { 'text/html': '<b>' }],
    ["'<i>', 'text/html'", { 'text/html': '<i>' }],
    ["{ [Symbol.for('ash.display')]() { return { 'text/html': 'x' } } }", { 'text/html': 'x' }],
    ['Buffer.from([0x89, 0x50, 0x4e, 0x47, 1])', { 'image/png': 'iVBORwE=' }],
    ['new Uint8Array([1, 2]), "image/gif"', { 'image/gif': 'AQI=' }],
    ['{ a: 1 }', { 'text/plain': '{ a: 1 }', 'application/json': { a: 1 } }],
    ['new Map([[1, 2]])', { 'text/plain': 'Map(1) { 1 => 2 }' }],
    [
      '[{ a: 1 }, { b: 2 }]',
      {
        'application/json': [{ a: 1 }, { b: 2 }],
        [TABLE_TYPE]: {
          columns: ['a', 'b'],
          rows: [
            [1, null],
            [null, 2],
          ],
          totalRows: 2,
        },
      },
    ],
  ])('%s', async (code, bundle) => {
    expect(await bundlesOf(`display(${code}); void 0`)).toMatchObject([bundle])
  })

  test.each([
    ["{ [Symbol.for('ash.display')]() { throw new Error('no') } }", /showing it threw Error: no/],
    ["{ [Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('no') } }", /threw Error: no/],
  ])('%s is shown as text that says so', async (code, text) => {
    expect(String((await bundlesOf(`display(${code})`))[0]?.['text/plain'])).toMatch(text)
  })

  test('results beyond the limit are dropped, and the run says so once', async () => {
    const code = 'for (let i = 0; i < 9; i++) display("x".repeat(4e6), "text/html"); 5'
    const { displays, result } = await shared.run(code)
    expect(displays.map(({ data }) => 'text/html' in data)).toEqual([true, true, false])
    expect(displays[2]?.data['text/plain']).toContain('dropped')
    expect(JSON.stringify(displays).length).toBeLessThan(MAX_RESULTS_BYTES)
    expect(result).toBe('5')
  })
})

describe('errors', () => {
  test.each([
    [
      'thrown',
      'const e1 = 1\nthrow new TypeError("t")',
      'TypeError',
      /^t$/,
      /TypeError: t\n\s+at <cell \d+>:2:7/,
    ],
    ['awaited', 'await 0\n\nnull.x', 'TypeError', /null/, /<cell \d+>:3/],
    [
      'in a function',
      '\nfunction bad() {\n  return nope\n}\nbad()',
      'ReferenceError',
      /nope/,
      /bad \(<cell \d+>:3/,
    ],
    ['syntax', 'let a =\n\n}', 'SyntaxError', /line 3/, /<cell \d+>:3\n\}/],
    ['not an error', 'throw { a: 1 }', 'Error', /^\{ a: 1 \}$/, undefined],
    ['a cause', 'throw new Error("a", { cause: new Error("b") })', 'Error', /^a$/, /\[cause\]: Error: b/],
    ['recursion', 'function r2() { r2() }\nr2()', 'RangeError', /call stack/, /r2/],
    [
      'a stack that throws',
      'throw Object.defineProperty(new Error("x"), "stack", { get() { throw 1 } })',
      'Error',
      /./,
      undefined,
    ],
    ['undeclared', 'undeclared = 1', 'ReferenceError', /undeclared/, undefined],
    ['of import.meta', 'import.meta.nope()', 'TypeError', /^import\.meta\.nope is not/, /import\.meta\.nope/],
    ['of an import', "await import('./nope.mjs')", 'Error', /nope/, undefined],
    ['rejected', 'await Promise.reject(new Error("r"))', 'Error', /^r$/, undefined],
  ])('%s', async (_, code, name, message, traceback) => {
    const { done } = await shared.run(code)
    expect(done.error?.name).toBe(name)
    expect(done.error?.message).toMatch(message)
    if (traceback) expect(done.error?.traceback).toMatch(traceback)
    expect(done.error?.traceback ?? '').not.toMatch(/javascript-kernel|node:vm|__ash__|<ash>/)
    expect((await shared.run('1')).result).toBe('1')
  })

  test('what is thrown later by timers and promises goes to stderr', async () => {
    const kernel = start()
    await kernel.run(
      'setTimeout(() => { throw new Error("timer") }, 5); Promise.reject(new Error("promise")); 0',
    )
    await expect.poll(() => kernel.stderr).toMatch(/Uncaught Error: timer/)
    expect(kernel.stderr).toMatch(/Uncaught Error: promise/)
    expect((await kernel.run('1')).result).toBe('1')
  })
})

describe('handlers', () => {
  const context = {
    functionName: 'f',
    functionVersion: '1',
    requestId: 'r',
    logGroupName: 'g',
    logStreamName: 's',
    memoryLimitMb: 256,
    invokedFunctionArn: 'arn',
    custom: { tenant: 't' },
  }

  test.each([
    ['a function', 'function handler(event) { return event.a }', '1'],
    ['an arrow', 'const handler = (event, context) => [event.a, context.awsRequestId]', '[1,"r"]'],
    ['async', 'export async function handler(event) { await 0; return event }', '{"a":1}'],
    ['export const', 'export const handler = async ({ a }) => a', '1'],
    ['export list', 'const h = () => 2\nexport { h as handler }', '2'],
    ['default', 'export default async (event) => event.a', '1'],
    ['a named default', 'export default function main(event) { return event.a }', '1'],
    ['exports', 'exports.handler = (event) => event.a', '1'],
    ['module.exports', 'module.exports = { handler: (event) => event.a }', '1'],
    ['module.exports itself', 'module.exports = (event) => event.a', '1'],
    ['none', 'const handler = () => "none"', '"none"'],
    ['a thenable', 'const handler = () => ({ then(done) { done(3) } })', '3'],
    ['nothing', 'const handler = () => {}', 'null'],
    ['null', 'const handler = () => null', 'null'],
    ['zero', 'const handler = () => 0', '0'],
    ['false', 'const handler = () => false', 'false'],
    ['an empty text', 'const handler = () => ""', '""'],
    ['toJSON', 'const handler = () => ({ toJSON: () => "j" })', '"j"'],
    ['a map', 'const handler = () => new Map([[1, 2]])', '{}'],
    ['a custom field', 'const handler = (e, c) => c.tenant', '"t"'],
    ['a callback', 'exports.handler = (event, context, callback) => callback(null, event.a)', '1'],
    [
      'a later callback',
      'exports.handler = (event, c, callback) => setTimeout(() => callback(undefined, event.a), 5)',
      '1',
    ],
    ['a callback that is not used', 'exports.handler = async (event, c, callback) => event.a', '1'],
    [
      'a callback that never comes',
      'exports.handler = (event, c, callback) => { setTimeout(() => {}, 5) }',
      'null',
    ],
  ])('%s', async (_, code, result) => {
    expect(await handle(code, { event: '{"a":1}', context })).toEqual({ displays: [], result, done: {} })
  })

  test('the context has all its fields in both spellings, and its time runs', async () => {
    const code = `export async function handler(event, c) {
      const before = c.getRemainingTimeInMillis()
      await new Promise((resolve) => setTimeout(resolve, 30))
      return [Object.values(c).filter((v) => typeof v === 'string').sort().join(''), c.memoryLimitInMB,
        c.memory_limit_in_mb, c.function_name, before, c.get_remaining_time_in_millis(), c.remaining_time_in_millis]
    }`
    const { result } = await handle(code, { context, timeoutMs: 1000 })
    const [texts, mb, mbToo, name, before, after, live] = JSON.parse(result ?? '')
    expect([texts, mb, mbToo, name]).toEqual(['11arnarnffggrrrrsst', 256, 256, 'f'])
    expect(before).toBeLessThanOrEqual(1000)
    expect(after).toBeLessThanOrEqual(before - 20)
    expect(live).toBeLessThanOrEqual(after)
  })

  test.each([
    ['no handler', 'const x7 = 1', 'HandlerNotFound', /handler/],
    ['a syntax error', '\nfunction handler( {', 'SyntaxError', /line 2/],
    [
      'a big integer',
      'const handler = () => ({ a: [1n] })',
      'ResultNotSerializable',
      /BigInt at result\["a"\]\["0"\]/,
    ],
    [
      'a cycle',
      'const handler = () => { const a = []; a.push(a); return a }',
      'ResultNotSerializable',
      /contains itself/,
    ],
    ['a function', 'const handler = () => () => 1', 'ResultNotSerializable', /function at result/],
    ['too large', 'const handler = () => "x".repeat(10 * 1024 * 1024)', 'ResultTooLarge', /10485760/],
    ['an exception', 'const handler = () => { throw new RangeError("no") }', 'RangeError', /no/],
    ['a rejection', 'const handler = async () => { throw new RangeError("no") }', 'RangeError', /no/],
    [
      'an exception that nobody catches',
      'const handler = () => new Promise(() => setTimeout(() => { throw new Error("late") }))',
      'Error',
      /late/,
    ],
    ['an exit', 'const handler = () => process.exit(3)', 'Exit', /3/],
    ['a callback', 'const handler = (e, c, done) => done(new RangeError("no"))', 'RangeError', /^no$/],
    ['a text', 'const handler = (e, c, done) => setTimeout(() => done("no"))', 'Error', /^no$/],
  ])('%s is an error', async (_, code, name, message) => {
    const { result, done } = await handle(code)
    expect(result).toBeUndefined()
    expect(done.error?.name).toBe(name)
    expect(done.error?.message).toMatch(message)
  })

  test('a traceback has no frame of the interpreter', async () => {
    const { done } = await handle('const handler = () => { null.x }')
    expect(done.error?.traceback).toMatch(/^TypeError: .*\n +at handler \(<handler>:1:\d+\)$/)
  })

  test('a large event and a large result go through', async () => {
    const event = JSON.stringify({ text: 'é'.repeat(4 * 1024 * 1024) })
    expect((await handle('const handler = (event) => event', { event })).result).toBe(event)
  })
})

describe('scripts', () => {
  test.each([
    ['an end', 'console.log("a"); 5', 0, undefined],
    ['an exit code', 'process.exit(3)', 3, undefined],
    ['one that is set', 'process.exitCode = 4', 4, undefined],
    ['an exception', 'null.x', 1, 'TypeError'],
    ['timers', 'setTimeout(() => { console.log("timer"); process.exitCode = 6 }, 20)', 6, undefined],
    ['an exception in a timer', 'setTimeout(() => { throw new RangeError("t") }, 5)', 1, 'RangeError'],
    ['a rejection', 'Promise.reject(new RangeError("p"))', 1, 'RangeError'],
    ['an await of nothing', 'await new Promise(() => {})', 13, 'Error'],
    ['an exit in a timer', 'setTimeout(() => process.exit(7)); await new Promise(() => {})', 7, undefined],
    [
      'an exception that it handles',
      'process.on("uncaughtException", () => { process.exitCode = 8 }); setTimeout(() => { throw 1 })',
      8,
      undefined,
    ],
    [
      'a rejection that it handles',
      'process.on("unhandledRejection", () => { process.exitCode = 8 }); Promise.reject(1)',
      8,
      undefined,
    ],
    [
      'a rejection that it handles as an exception',
      'process.on("uncaughtException", () => { process.exitCode = 8 }); Promise.reject(1)',
      8,
      undefined,
    ],
    ['an import', 'import { sep } from "node:path"; await import("node:fs")', 0, undefined],
  ])('%s', async (name, code, exitCode, error) => {
    const kernel = start()
    const { done, result } = await kernel.run({ kind: 'script', code })
    expect(done.error?.name).toBe(error)
    expect(done.exitCode).toBeUndefined()
    expect(await kernel.exited).toEqual([exitCode, null])
    if (name === 'an end') expect([kernel.stdout, result]).toEqual(['a\n', '5'])
    expect(kernel.stderr).toBe('')
  })

  test('no output is lost by an exit', async () => {
    const kernel = start()
    await kernel.run({ kind: 'script', code: 'process.stdout.write("x".repeat(3e6)); process.exit()' })
    await kernel.exited
    expect(kernel.stdout.length).toBe(3e6)
  })
})

describe('the process', () => {
  test('it ends when its channel does', async () => {
    const kernel = start()
    await kernel.run('setInterval(() => {}, 1000); 0')
    kernel.end()
    expect(await kernel.exited).toEqual([0, null])
    expect(kernel.stderr).toBe('')
  })

  test('environment, folder and empty input', async () => {
    const kernel = start({ A: '1', B: '1' })
    const code = '[process.env.A, process.env.B, process.cwd(), require("fs").readFileSync(0, "utf8")]'
    const { result } = await kernel.run({ code, env: { B: '2' } })
    expect(JSON.parse(result ?? '')).toEqual(['1', '2', kernel.cwd, ''])
  })

  test('variables of a run go with it, those of the session stay', async () => {
    const kernel = start({ B: '1' })
    const code = '["A", "B", "C"].map((name) => process.env[name] ?? null)'
    const env = { A: '2', B: '2' }
    expect((await kernel.run({ code, env, sessionEnv: { B: '3', C: '3' } })).result).toBe('["2","2","3"]')
    expect((await kernel.run(code)).result).toBe('[null,"3","3"]')
    await kernel.run({ code: 'throw 1', env })
    expect((await kernel.run(code)).result).toBe('[null,"3","3"]')
  })

  test('it goes on where its folder is gone', async () => {
    const kernel = start()
    await kernel.run(
      'const fs = require("fs"); fs.mkdirSync("gone"); process.chdir("gone"); fs.rmdirSync("../gone")',
    )
    expect((await kernel.run('process.cwd()')).done.error?.message).toMatch(/ENOENT/)
    expect((await kernel.run('import { sep } from "node:path"\nsep')).result).toBe('"/"')
    await kernel.run('process.chdir("/")')
    expect((await kernel.run('process.cwd() + __dirname')).result).toBe('"//"')
  })

  test.each([
    ['process.exit()', 0],
    ['process.exit(3)', 3],
    ['process.exitCode = 4; process.exit()', 4],
    ['await 0; process.exit(5)', 5],
    ['setTimeout(() => process.exit(6)); await new Promise(() => {})', 6],
  ])('it survives %s', async (code, exitCode) => {
    const kernel = start()
    await kernel.run('const kept = 1')
    expect(await kernel.run(code)).toEqual({ displays: [], done: { exitCode } })
    expect((await kernel.run('kept')).result).toBe('1')
  })

  test('a program that it starts does not have the channel', async () => {
    const code = `const links = 'readlink /proc/self/fd/*'
const given = require('child_process').spawnSync('sh', ['-c', links], { stdio: ['ignore', 'pipe', 'ignore'] }).stdout.toString()
given.includes(require('fs').readlinkSync('/proc/self/fd/3'))`
    expect((await start().run(code)).result).toBe('false')
  })

  test.each([
    ['names', 'const JSON = 1, Buffer = 2, process = 3, Promise = 4, Object = 5'],
    ['functions', 'JSON.stringify = Object.assign = Object.defineProperty = Atomics.wait = null'],
    ['prototypes', 'Object.prototype.toJSON = () => 1'],
    ['listeners', 'process.removeAllListeners(); process.exit = null'],
    ['streams', 'console.log = null; process.stdout.destroy(); process.stderr.destroy()'],
    ['the stack', 'Error.prepareStackTrace = () => { throw 1 }; Error.stackTraceLimit = 0'],
    ['its globals', 'delete globalThis.__ash__; globalThis.display = null'],
  ])('replaced %s do not keep a run from ending', async (_, code) => {
    const kernel = start()
    expect((await kernel.run(code)).done.error).toBeUndefined()
    await kernel.run('1 + 1')
    expect((await kernel.run('throw new Error("v")')).done.error).toBeDefined()
  })
})

describe('interrupts', () => {
  test.each([
    ['a loop', 'display(1); while (true) {}'],
    ['an await', 'display(1); await new Promise(() => {})'],
    ['a later await', 'setTimeout(() => display(1), 5); await new Promise(() => {})'],
    ['a sleep', 'display(1); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)'],
    ['displays', 'while (true) display(1)'],
    ['a loop after an await', 'await new Promise((go) => setTimeout(go, 300)); display(1); while (true) {}'],
    [
      'a loop in a timer',
      'setTimeout(() => { display(1); while (true) {} }, 300); await new Promise(() => {})',
    ],
  ])('%s ends, and what it left is kept', async (_, code) => {
    const kernel = start()
    await kernel.run('const kept = 1')
    kernel.send({ code })
    await expect.poll(async () => (await kernel.next()).kind).toBe('display')
    kernel.interrupt()
    const { done } = await kernel.replies()
    expect(done.error?.name).toBe('Interrupted')
    expect((await kernel.run('kept')).result).toBe('1')
    expect((await kernel.run('await new Promise((go) => setTimeout(go, 5, 2))')).result).toBe('2')
    expect((await kernel.run('await require("fs").promises.readFile("/dev/null", "utf8")')).result).toBe('""')
    kernel.end()
    expect(await kernel.exited).toEqual([0, null])
    expect(kernel.stderr).toBe('')
  })

  test('also the second loop after an await ends', async () => {
    const kernel = start()
    for (let round = 0; round < 2; round++) {
      kernel.send({ code: 'await new Promise((go) => setTimeout(go, 300)); display(1); while (true) {}' })
      await expect.poll(async () => (await kernel.next()).kind).toBe('display')
      kernel.interrupt()
      expect((await kernel.replies()).done.error?.name).toBe('Interrupted')
    }
  })

  test('a handler ends, too', async () => {
    const kernel = start()
    kernel.send({ kind: 'handler', code: 'const handler = () => { display(1); while (true) {} }' })
    await expect.poll(async () => (await kernel.next()).kind).toBe('display')
    kernel.interrupt()
    expect((await kernel.replies()).done.error?.name).toBe('Interrupted')
  })

  test('a listener of user code does not have the interrupt of a later run', async () => {
    const kernel = start()
    await kernel.run('process.on("SIGINT", () => {}); 0')
    kernel.send({ code: 'display(1); while (true) {}' })
    await expect.poll(async () => (await kernel.next()).kind).toBe('display')
    kernel.interrupt()
    expect((await kernel.replies()).done.error?.name).toBe('Interrupted')
  })

  test('an idle one does not notice', async () => {
    const kernel = start()
    await kernel.run('1')
    kernel.interrupt()
    kernel.interrupt()
    await expect.poll(async () => (await kernel.run('1')).result).toBe('1')
  })
})
