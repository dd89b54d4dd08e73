import type { Execution } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTestServer, type TestServer } from './support/test-server.ts'

// Whatever code does, its run ends in the right state, and the session takes the next one.

const DISK_MB = 64
const MEMORY_MB = 300
const MAX_OUTPUT_CHARS = 10 * 1024 * 1024

let server: TestServer
let id: string
beforeAll(async () => {
  server = await startTestServer()
  const limits = { diskMb: DISK_MB, memoryMb: MEMORY_MB, processes: 100 }
  await server.client.templates.create({ name: 'small', languages: ['python', 'shell'], limits })
  id = (await server.client.sessions.create({ template: 'small' })).id
})
afterAll(() => server.close())

interface Wish {
  code: string
  timeout?: number
}

const indent = (code: string) => code.replaceAll(/^/gm, '    ')
const asHandler = (code: string) => `def handler(event):\n${indent(code)}`

/** The ways in which code can be run. */
const FORMS: Record<string, (wish: Wish) => Promise<Execution>> = {
  kernel: (wish) => server.client.sessions.execute(id, wish),
  script: (wish) => server.client.sessions.execute(id, { ...wish, fresh: true, retry: false }),
  handler: ({ code, timeout }) =>
    server.client.sessions.execute(id, {
      handler: asHandler(code),
      retry: false,
      ...(timeout !== undefined && { timeout }),
    }),
  'sandbox of its own': (wish) => server.client.execute({ template: 'small', ...wish }),
}

const sleepers = async (seconds: number) =>
  (await server.listSandboxProcesses()).filter(({ command }) => command.includes(String(seconds)))

describe.each(Object.keys(FORMS))('in a %s', (form) => {
  const run = (code: string, timeout?: number) =>
    (FORMS[form] ?? FORMS.kernel)?.({ code, ...(timeout !== undefined && { timeout }) }) as Promise<Execution>
  const keepsProcess = form === 'kernel'

  const goesOn = async () =>
    expect(await run('print("still here")')).toMatchObject({ status: 'completed', stdout: 'still here\n' })

  test('a flood of output is cut off, and the rest of the server goes on', async () => {
    const flood = 'import sys\nwhile True: sys.stdout.write("x" * 65536)'
    const flooding = run(flood, 4000)
    expect(await server.client.health()).toMatchObject({ status: 'ok' })
    const { status, truncated, stdout } = await flooding
    expect({ status, truncated }).toEqual({ status: 'timeout', truncated: true })
    expect(stdout.length).toBeLessThanOrEqual(MAX_OUTPUT_CHARS)
    expect(stdout.length).toBeGreaterThan(100_000)
    await goesOn()
  })

  test('an exit without farewell is an exit', async () => {
    const execution = await run('import os\nprint("last words", flush=True)\nos._exit(5)')
    expect(execution).toMatchObject({ status: 'failed', exitCode: 5, stdout: 'last words\n' })
    await goesOn()
  })

  test('a crash of the interpreter says by which signal', async () => {
    const execution = await run('import ctypes\nctypes.string_at(0)')
    expect(execution).toMatchObject({ status: 'failed', signal: 'SIGSEGV' })
    await goesOn()
  })

  test('code that stops itself runs into its time-out', async () => {
    const code = 'import os, signal\nprint("stops", flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)'
    expect(await run(code, 1500)).toMatchObject({ status: 'timeout', stdout: 'stops\n' })
    await goesOn()
  })

  test('code that blocks every signal runs into its time-out', async () => {
    const code = 'import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass'
    expect(await run(code, 1500)).toMatchObject({ status: 'timeout' })
    await goesOn()
  })

  test('code may close its output', async () => {
    const execution = await run('import os\nprint("before", flush=True)\nos.close(1)\nos.close(2)')
    expect(['completed', 'failed']).toContain(execution.status)
    expect(execution.stdout).toBe('before\n')
    await goesOn()
  })

  test('garbage on the channel of the results is no result', async () => {
    for (const garbage of ['{"result":', 'nonsense\\n', '{"done":{}}\\n{"done":{}}\\n', '{"result":}\\n']) {
      const code = `import os
for fd in map(int, os.listdir("/proc/self/fd")):
    try: fd > 2 and os.write(fd, b'${garbage}' * 3)
    except OSError: pass`
      const { status, result } = await run(code, 5000)
      expect(result).toBeNull()
      expect(['completed', 'failed']).toContain(status)
      await goesOn()
    }
  })

  test('a child that goes on writing does not keep the run', async () => {
    const code = `import os, time
if os.fork() == 0:
    while True:
        try: os.write(1, b"child\\n")
        except OSError: pass
        time.sleep(0.01)
print("parent", flush=True)`
    const execution = await run(code, 20_000)
    expect(execution.status).toBe('completed')
    expect(execution.stdout).toContain('parent')
    expect(execution.metrics?.wallMs).toBeLessThan(10_000)
  })

  if (!keepsProcess)
    test('daemons are gone with the run', async () => {
      const code = `import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(5432)"], {})
    os._exit(0)
os.wait()`
      expect(await run(code)).toMatchObject({ status: 'completed' })
      expect(await sleepers(5432)).toEqual([])
      await goesOn()
    })

  test('a fork bomb is held, and ends with the run', async () => {
    const bomb = `import os
while True:
    try:
        if os.fork() == 0: pass
    except OSError: pass`
    expect((await run(bomb, 2000)).status).not.toBe('completed')
    await goesOn()
  })

  test('a full disk is the fault of the code, and room can be made again', async () => {
    const fill = `with open("big", "wb") as f:\n    while True: f.write(b"x" * 1048576)`
    expect(await run(fill, 60_000)).toMatchObject({
      status: 'failed',
      error: { name: 'OSError', message: expect.stringContaining('No space left') },
    })
    await run('import os\nif os.path.exists("big"): os.remove("big")')
    await goesOn()
  })

  test('too much memory is named as such', async () => {
    const eat = 'chunks = []\nwhile True: chunks.append(bytearray(10_000_000))'
    const execution = await run(eat, 60_000)
    expect(execution).toMatchObject({ status: 'failed' })
    expect(['OutOfMemory', 'MemoryError']).toContain(execution.error?.name)
    await goesOn()
  })
})

/** The same in JavaScript, where the way out is another one. */
const JAVASCRIPT_FORMS: Record<string, (wish: Wish) => Promise<Execution>> = {
  kernel: (wish) => server.client.sessions.execute(javascriptId, { ...wish, kernel: 'hostile' }),
  handler: ({ code, timeout }) =>
    server.client.sessions.execute(javascriptId, {
      handler: `export async function handler() {\n${code}\n}`,
      retry: false,
      ...(timeout !== undefined && { timeout }),
    }),
  'sandbox of its own': (wish) => server.client.execute({ template: 'small-node', ...wish }),
}
let javascriptId: string

describe.each(Object.keys(JAVASCRIPT_FORMS))('in a %s of JavaScript', (form) => {
  beforeAll(async () => {
    const limits = { diskMb: DISK_MB, memoryMb: 400, processes: 100 }
    const { templates } = await server.client.templates.list()
    if (!templates.some(({ name }) => name === 'small-node'))
      await server.client.templates.create({ name: 'small-node', languages: ['javascript', 'shell'], limits })
    javascriptId = (await server.client.sessions.create({ template: 'small-node' })).id
  })
  afterAll(() => server.client.sessions.end(javascriptId))

  const run = (code: string, timeout?: number) =>
    JAVASCRIPT_FORMS[form]?.({ code, ...(timeout !== undefined && { timeout }) }) as Promise<Execution>
  const goesOn = async () =>
    expect(await run('console.log("still here")')).toMatchObject({
      status: 'completed',
      stdout: 'still here\n',
    })

  test('an endless loop runs into its time-out', async () => {
    expect(await run('console.log("begun"); for (;;);', 1500)).toMatchObject({ status: 'timeout' })
    await goesOn()
  })

  test('code that kills its own process was killed', async () => {
    const execution = await run("process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})", 10_000)
    expect(execution).toMatchObject({ status: 'failed', signal: 'SIGKILL' })
    await goesOn()
  })

  test('code may close its output', async () => {
    const code = 'console.log("before"); (await import("node:fs")).closeSync(1)'
    const { status, stdout } = await run(code, 10_000)
    expect(['completed', 'failed']).toContain(status)
    expect(['before\n', '']).toContain(stdout)
    // What a kernel has closed stays closed for it.
    if (form === 'kernel')
      await server.client.kernels.delete(javascriptId, { language: 'javascript', name: 'hostile' })
    await goesOn()
  })

  test('garbage on the channel of the results is no result', async () => {
    for (const garbage of ['{"result":', 'nonsense\\n', '{"done":{}}\\n{"done":{}}\\n', '{"result":}\\n']) {
      const code = `const fs = await import('node:fs')
for (const fd of [3, 4, 5, 6, 7, 8, 9, 10]) try { fs.writeSync(fd, '${garbage}'.repeat(3)) } catch {}
undefined`
      const { status, result } = await run(code, 5000)
      expect(result).toBeNull()
      expect(['completed', 'failed', 'timeout']).toContain(status)
      await goesOn()
    }
  })

  if (form !== 'kernel')
    test('detached children are gone with the run', async () => {
      const code = `const { spawn } = await import('node:child_process')
spawn('sleep', ['5433'], { detached: true, stdio: 'ignore', env: {} }).unref()
undefined`
      expect(await run(code)).toMatchObject({ status: 'completed' })
      expect(await sleepers(5433)).toEqual([])
      await goesOn()
    })
})
