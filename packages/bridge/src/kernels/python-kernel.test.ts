import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { KernelProcess } from './testing/kernel-process.ts'

function start(options: { env?: Record<string, string> } = {}): KernelProcess {
  const kernel = new KernelProcess('python', options)
  onTestFinished(() => kernel.stop())
  return kernel
}

/** The tests of values share one: each would start a process otherwise. */
let shared: KernelProcess
beforeAll(() => {
  shared = new KernelProcess('python')
})
afterAll(() => shared.stop())

const handle = (code: string, more: object = {}) => shared.run({ kind: 'handler', code, ...more })

describe('values', () => {
  test.each([
    ['1 + 1', '2', '2'],
    ['"ä" * 2', '"ää"', "'ää'"],
    ['0', '0', '0'],
    ['False', 'false', 'False'],
    ['""', '""', "''"],
    ['[]', '[]', '[]'],
    ['{}', '{}', '{}'],
    ['(1, 2)', '[1,2]', '(1, 2)'],
    ['{1: None}', '{"1":null}', '{1: None}'],
    ['x = 3\nx', '3', '3'],
    ['import asyncio\nawait asyncio.sleep(0, 7)', '7', '7'],
    ['1 # ;', '1', '1'],
    ['"a\\ud800"', '"a\\ud800"', "'a\\ud800'"],
    ['\ufeff3', '3', '3'],
  ])('%j is %s', async (code, result, text) => {
    const replies = await shared.run(code)
    expect(replies.done).toEqual({})
    expect(replies.result).toBe(result)
    expect(replies.displays.at(-1)).toMatchObject({ isValue: true, data: { 'text/plain': text } })
  })

  test.each(['None', 'x = 1', '1;', '(1) ; # no', '', '# nothing', 'print("a")', 'for i in []: i'])(
    '%j has none',
    async (code) => {
      expect(await shared.run(code)).toEqual({ displays: [], done: {} })
    },
  )

  test('one that is no JSON is shown and is no result', async () => {
    const replies = await shared.run('{1, 2}')
    expect(replies).toEqual({ displays: [{ isValue: true, data: { 'text/plain': '{1, 2}' } }], done: {} })
  })

  test('one too large for a result is shown cut', async () => {
    const { result, displays } = await shared.run('"x" * (11 * 1024 * 1024)')
    expect(result).toBeUndefined()
    expect(String(displays[0]?.data['text/plain']).length).toBeLessThan(1024 * 1024 + 100)
  })

  test('variables, functions and modules stay; _ does not exist', async () => {
    await shared.run('import math\ndef area(r): return math.pi * r ** 2\ny = 5')
    expect((await shared.run('round(area(y))')).result).toBe('79')
    expect((await shared.run('_')).done.error?.name).toBe('NameError')
  })

  test('what a cell imports from the future holds for later ones, and not for handlers', async () => {
    const kernel = start()
    await kernel.run('from __future__ import annotations')
    expect((await kernel.run('def f(x: nope): pass\nf.__annotations__')).result).toBe('{"x":"nope"}')
    const code = 'def handler(event: nope): return 1'
    expect((await kernel.run({ kind: 'handler', code })).done.error?.name).toBe('NameError')
  })

  test('a class of a cell can be pickled', async () => {
    const code = 'import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))) is P'
    expect((await shared.run(code)).result).toBe('true')
  })
})

describe('errors', () => {
  test('an exception comes with its chain, lines and no frame of ours', async () => {
    const kernel = start()
    await kernel.run('def f():\n    raise KeyError("k")')
    const { done } = await kernel.run(
      'try:\n    f()\nexcept KeyError as e:\n    raise ValueError("v") from e',
    )
    expect(done.error).toMatchObject({ name: 'ValueError', message: 'v' })
    expect(done.error?.traceback).toContain('File "<cell 1>", line 2, in f\n    raise KeyError("k")')
    expect(done.error?.traceback).toContain('direct cause')
    expect(done.error?.traceback).toMatch(/ValueError: v\n$/)
    expect(done.error?.traceback).not.toMatch(/python-|asyncio/)
  })

  test.each([
    ['a syntax error', 'x = 1\nif', 'SyntaxError', /line 2/],
    ['endless recursion', 'def r(): return r()\nr()', 'RecursionError', /recursion/],
    ['too much memory', '[0] * (1 << 60)', 'MemoryError', /^$/],
    [
      'one without a text',
      'class E(Exception):\n  def __str__(self): raise E()\nraise E()',
      'E',
      /could not be made/,
    ],
    ['a group', 'raise ExceptionGroup("g", [ValueError(1)])', 'ExceptionGroup', /g \(1 sub-exception\)/],
    ['input', 'input("? ")', 'InputNotAvailable', /^input\(\) is not available here: send the data/],
    [
      'one that was awaited',
      'import asyncio\nawait asyncio.wait_for(asyncio.sleep(9), 0)',
      'TimeoutError',
      /^$/,
    ],
    ['a long one', 'raise ValueError("x" * 10**6)', 'ValueError', /cut/],
  ])('%s', async (_, code, name, message) => {
    const { done } = await shared.run(code)
    expect(done.error?.name).toBe(name)
    expect(done.error?.message).toMatch(message)
    expect(done.error?.traceback).not.toMatch(/python-kernel/)
    expect(done.error?.traceback?.length).toBeLessThan(110 * 1024)
    expect((await shared.run('1')).result).toBe('1')
  })

  test('code that prints its own traceback sees its lines', async () => {
    const kernel = start()
    await kernel.run('import traceback\ntry:\n    1 / 0\nexcept Exception: traceback.print_exc()')
    await kernel.run('try:\n    2 / 0\nexcept Exception: traceback.print_exc()')
    await expect.poll(() => kernel.stderr).toContain('    2 / 0\n')
    expect(kernel.stderr).toContain('    1 / 0\n')
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
    custom: { tenant: 't', get_remaining_time_in_millis: 1 },
  }

  test.each([
    ['one parameter', 'def handler(event): return event["a"]', '1'],
    ['two', 'def handler(event, context): return [event["a"], context.request_id]', '[1,"r"]'],
    ['none', 'def handler(): return "none"', '"none"'],
    ['any', 'def handler(*args): return len(args)', '2'],
    ['a default', 'def handler(event, context=None): return context is None', 'false'],
    [
      'async',
      'import asyncio\nasync def handler(event):\n  await asyncio.sleep(0)\n  return event',
      '{"a":1}',
    ],
    ['an awaitable', 'async def f(): return 5\ndef handler(event): return f()', '5'],
    ['an object', 'class H:\n  def __call__(self, event): return event["a"]\nhandler = H()', '1'],
    ['a method', 'class H:\n  def m(self, event): return event["a"]\nhandler = H().m', '1'],
    [
      'partial',
      'import functools\nhandler = functools.partial(lambda x, event: [x, event["a"]], 3)',
      '[3,1]',
    ],
    [
      'a decorator',
      'import functools\ndef d(f):\n  @functools.wraps(f)\n  def g(*a): return f(*a)\n  return g\n@d\ndef handler(event): return 1',
      '1',
    ],
    ['nothing', 'def handler(event): pass', 'null'],
    ['zero', 'def handler(event): return 0', '0'],
    ['false', 'def handler(event): return False', 'false'],
    ['an empty text', 'def handler(event): return ""', '""'],
    ['an empty list', 'def handler(event): return []', '[]'],
    ['an empty object', 'def handler(event): return {}', '{}'],
    ['its name', 'def handler(event): return __name__', '"__handler__"'],
    ['a custom field', 'def handler(event, c): return c.tenant', '"t"'],
  ])('%s', async (_, code, result) => {
    expect(await handle(code, { event: '{"a":1}', context })).toEqual({ displays: [], result, done: {} })
  })

  test('the context has all its fields, and its time runs', async () => {
    const names = `function_name function_version request_id aws_request_id log_group_name log_stream_name
      memory_limit_in_mb invoked_function_arn`
    const code = `import time
def handler(event, c):
  a = c.get_remaining_time_in_millis(); time.sleep(0.02); b = c.remaining_time_in_millis
  return [[getattr(c, n) for n in """${names}""".split()], a, b]`
    const { result } = await handle(code, { context, timeoutMs: 1000 })
    const [fields, before, after] = JSON.parse(result ?? '')
    expect(fields).toEqual(['f', '1', 'r', 'r', 'g', 's', 256, 'arn'])
    expect(before).toBeLessThanOrEqual(1000)
    expect(before).toBeGreaterThan(500)
    expect(after).toBeLessThanOrEqual(before - 20)
    const late = await handle(
      'import time\ndef handler(e, c): time.sleep(0.01); return c.remaining_time_in_millis',
      {
        timeoutMs: 1,
      },
    )
    expect(late.result).toBe('0')
  })

  test.each([
    ['no handler', 'x = 1', 'HandlerNotFound', /def handler\(event\)/],
    ['a handler that is none', 'handler = 1', 'HandlerNotFound', /handler/],
    ['a syntax error', 'def handler(event)\n', 'SyntaxError', /line 1/],
    ['a set', 'def handler(e): return {"a": [1, {2}]}', 'ResultNotSerializable', /set at result\['a'\]\[1\]/],
    ['bytes', 'def handler(e): return b""', 'ResultNotSerializable', /bytes at result/],
    ['NaN', 'def handler(e): return [float("nan")]', 'ResultNotSerializable', /nan at result\[0\]/],
    ['infinity', 'def handler(e): return float("inf")', 'ResultNotSerializable', /inf at result/],
    [
      'a date',
      'import datetime\ndef handler(e): return datetime.date.today()',
      'ResultNotSerializable',
      /date at result/,
    ],
    [
      'a cycle',
      'def handler(e):\n  a = []; a.append(a); return a',
      'ResultNotSerializable',
      /contains itself/,
    ],
    ['a key', 'def handler(e): return {(1,): 2}', 'ResultNotSerializable', /key of type tuple/],
    [
      'too deep',
      'def handler(e):\n  a = []\n  for _ in range(10**5): a = [a]\n  return a',
      'ResultNotSerializable',
      /./,
    ],
    ['too large', 'def handler(e): return "x" * (10 * 1024 * 1024)', 'ResultTooLarge', /10485760/],
    ['an exception', 'def handler(e): raise ValueError("no")', 'ValueError', /no/],
    ['an exit', 'def handler(e): exit(3)', 'SystemExit', /3/],
  ])('%s is an error', async (_, code, name, message) => {
    const { result, done } = await handle(code)
    expect(result).toBeUndefined()
    expect(done.error?.name).toBe(name)
    expect(done.error?.message).toMatch(message)
  })

  test('a large event and a large result go through', async () => {
    const event = JSON.stringify({ text: 'é'.repeat(4 * 1024 * 1024) })
    const { result } = await handle('def handler(event): return event', { event })
    expect(result).toBe(event)
  })

  test('one does not see the variables of code, nor of another', async () => {
    await shared.run('secret = 1')
    await handle('other = 1\ndef handler(e): pass')
    const { result } = await handle('def handler(e): return [n in globals() for n in ("secret", "other")]')
    expect(result).toBe('[false,false]')
  })
})

describe('scripts', () => {
  test.each([
    ['an end', 'print("a")', 0, undefined],
    ['an exit code', 'import sys; sys.exit(3)', 3, undefined],
    ['an exit with a text', 'exit("bye")', 1, undefined],
    ['an exception', '1 / 0', 1, 'ZeroDivisionError'],
    [
      'threads and exit handlers',
      'import atexit, threading, time\natexit.register(print, "late")\nthreading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()',
      0,
      undefined,
    ],
    [
      'a task that is left',
      'import asyncio\nt = asyncio.ensure_future(asyncio.sleep(99))\nawait asyncio.sleep(0)',
      0,
      undefined,
    ],
  ])('%s', async (name, code, exitCode, error) => {
    const kernel = start()
    const { done } = await kernel.run({ kind: 'script', code })
    expect(done.error?.name).toBe(error)
    expect(done.exitCode).toBeUndefined()
    expect(await kernel.exited).toEqual([exitCode, null])
    if (name === 'threads and exit handlers') expect(kernel.stdout).toBe('thread\nlate\n')
    expect(kernel.stderr).toBe(name === 'an exit with a text' ? 'bye\n' : '')
  })

  test('what it holds is finalized at its end', async () => {
    const kernel = start()
    const code = 'class A:\n  def __del__(self): print("gone")\na = A()'
    await kernel.run({ kind: 'script', code })
    expect(await kernel.exited).toEqual([0, null])
    expect(kernel.stdout).toBe('gone\n')
  })

  test('what it left open is written at its end', async () => {
    const kernel = start()
    const code = `import sys
def say(text): print(text, file=sys.__stdout__)
class Last:
  def __init__(self): self.me = self
  def __del__(self): say('last')
last = Last()
file = open('open.txt', 'w')
file.write('left open')
file.me = file
sys.stdout = open('printed.txt', 'w')
print('elsewhere', end='')
sys.exit(7)`
    await kernel.run({ kind: 'script', code })
    expect(await kernel.exited).toEqual([7, null])
    expect(kernel.stdout).toBe('last\n')
    const read = (name: string) => readFileSync(join(kernel.cwd, name), 'utf8')
    expect([read('open.txt'), read('printed.txt')]).toEqual(['left open', 'elsewhere'])
  })

  test('the program is __main__', async () => {
    expect((await start().run({ kind: 'script', code: '__name__' })).result).toBe('"__main__"')
  })
})

describe('the process', () => {
  test('it ends when its channel does', async () => {
    const kernel = start()
    await kernel.run('import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()')
    kernel.end()
    expect(await kernel.exited).toEqual([0, null])
    expect(kernel.stderr).toBe('')
  })

  test('environment, folder and empty input', async () => {
    const kernel = start({ env: { A: '1', B: '1' } })
    const code =
      'import os, sys\n[os.environ["A"], os.environ["B"], os.getcwd(), sys.stdin.read(), sys.path[0], sys.argv]'
    const { result } = await kernel.run({ code, env: { B: '2' } })
    expect(JSON.parse(result ?? '')).toEqual(['1', '2', kernel.cwd, '', '', ['']])
  })

  test('variables of a run go with it, those of the session stay', async () => {
    const kernel = start({ env: { B: '1' } })
    const code = 'import os\n[os.environ.get(name) for name in "ABC"]'
    const env = { A: '2', B: '2' }
    expect((await kernel.run({ code, env, sessionEnv: { B: '3', C: '3' } })).result).toBe('["2","2","3"]')
    expect((await kernel.run(code)).result).toBe('[null,"3","3"]')
    await kernel.run({ code: '1 / 0', env })
    expect((await kernel.run(code)).result).toBe('[null,"3","3"]')
  })

  test.each([false, true])(
    'files named like standard modules are not for the kernel; imported: %s',
    async (isImported) => {
      const kernel = start()
      const names = [
        'token',
        're',
        'selectors',
        'binascii',
        'traceback',
        'inspect',
        'enum',
        'types',
        'functools',
      ]
      for (const name of names) writeFileSync(join(kernel.cwd, `${name}.py`), 'mine = 1')
      if (isImported) expect((await kernel.run('import token, re\nre.mine + token.mine')).result).toBe('2')
      expect((await kernel.run('"text"')).displays).toHaveLength(1)
      const { done } = await kernel.run('x = 1\n1 / 0')
      expect(done.error?.traceback).toContain('line 2, in <module>\n    1 / 0')
      const handler = 'class H:\n  def __call__(self, event): return 5\nhandler = H()'
      expect((await kernel.run({ kind: 'handler', code: handler })).result).toBe('5')
      expect((await kernel.run('async def f(): return 6\nawait f()')).result).toBe('6')
      if (isImported) expect((await kernel.run('import re\nre.mine')).result).toBe('1')
    },
  )

  test('output is there when the run is done', async () => {
    const kernel = start()
    await kernel.run('import sys\nprint("no newline", end="")\nsys.stderr.write("err")')
    await expect.poll(() => [kernel.stdout, kernel.stderr]).toEqual(['no newline', 'err'])
  })

  test.each([
    ['exit()', 0],
    ['exit(3)', 3],
    ['import sys; sys.exit()', 0],
    ['quit("text")', 1],
    ['raise SystemExit(True)', 1],
    ['exit(10 ** 30)', 0],
    ['import asyncio\nasync def f(): exit(4)\nawait f()', 4],
  ])('it survives %s', async (code, exitCode) => {
    const kernel = start()
    await kernel.run('kept = 1')
    expect(await kernel.run(code)).toEqual({ displays: [], done: { exitCode } })
    expect((await kernel.run('kept')).result).toBe('1')
  })

  test('os._exit ends it', async () => {
    const kernel = start()
    await expect(kernel.run('import os; os._exit(5)')).rejects.toThrow(/gone/)
    expect(await kernel.exited).toEqual([5, null])
  })

  test('tasks live on from one cell to the next', async () => {
    const kernel = start()
    await kernel.run(
      'import asyncio\nq = asyncio.Queue()\nt = asyncio.create_task(q.get())\nawait asyncio.sleep(0)',
    )
    expect((await kernel.run('q.put_nowait(6)\nawait t')).result).toBe('6')
    expect((await kernel.run('asyncio.run(asyncio.sleep(0, 1))')).result).toBe('1')
    expect((await kernel.run('await asyncio.sleep(0, 2)')).result).toBe('2')
  })
})

describe('hostile code', () => {
  test.each([
    ['closed streams', 'import sys, os\nsys.stdout.close(); sys.stderr.close()'],
    ['closed descriptors', 'import os\nos.close(1); os.close(2)'],
    ['replaced streams', 'import sys, io\nsys.stdout = io.StringIO(); sys.stdout.close(); del sys.stderr'],
    [
      'replaced builtins',
      'import builtins\nfor n in ("len", "isinstance", "type", "compile", "eval", "str", "getattr", "open"):\n  setattr(builtins, n, None)',
    ],
    [
      'replaced functions',
      'import os, time, signal, json\nos.write = os.read = os.getpid = time.monotonic = signal.signal = json.dumps = None',
    ],
    [
      'no modules',
      'import sys\nfor n in list(sys.modules):\n  if n not in ("sys", "builtins"): del sys.modules[n]',
    ],
    ['a trap', 'import sys\ndef t(*a): raise ValueError("trap")\nsys.setprofile(t)'],
    ['a tracer', 'import sys\ndef t(*a): raise ValueError("trap")\nsys.settrace(t)'],
    [
      'a hook',
      'import sys\nsys.excepthook = None; sys.displayhook = None; sys.meta_path.clear(); sys.path.clear()',
    ],
    ['signals', 'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)'],
    ['its own name', 'import sys\ndel sys.modules["__main__"]\nimport gc\ngc.collect()'],
  ])('%s do not keep a run from ending', async (_, code) => {
    const kernel = start()
    await kernel.run(code)
    expect((await kernel.run('1 + 1')).result).toBe('2')
    expect((await kernel.run('raise ValueError("v")')).done.error).toMatchObject({
      name: 'ValueError',
      message: 'v',
    })
    await kernel.run('import sys\nsys.stdout.write("out\\n")')
    await expect.poll(() => kernel.stdout).toBe('out\n')
  })

  test('a forked child ends with the code and cannot speak', async () => {
    const kernel = start()
    const code = `import os, sys
pid = os.fork()
if pid == 0: display("child")
else: status = os.waitpid(pid, 0)[1]
"parent" if pid else "child"`
    const { displays, result } = await kernel.run(code)
    expect(displays).toHaveLength(1)
    expect(result).toBe('"parent"')
    expect((await kernel.run('status')).result).toBe('0')
    await kernel.run('pid = os.fork()\nif pid == 0: sys.exit(7)\nstatus = os.waitpid(pid, 0)[1]')
    expect((await kernel.run('os.waitstatus_to_exitcode(status)')).result).toBe('7')
    await kernel.run('pid = os.fork()\nif pid == 0: raise ValueError("in the child")\nos.waitpid(pid, 0)')
    await expect.poll(() => kernel.stderr).toContain('ValueError: in the child')
  })

  test('multiprocessing works', async () => {
    const code = `import multiprocessing as m
def double(x): return x * 2
with m.get_context("fork").Pool(2) as pool: values = pool.map(double, [1, 2])
values`
    expect((await start().run(code)).result).toBe('[2,4]')
  })

  test('a program that it starts does not have the channel, and descriptor 3 is free', async () => {
    const code = `import os, subprocess
links = "readlink /proc/self/fd/*"
given = subprocess.run(["sh", "-c", links], close_fds=False, capture_output=True, text=True).stdout
[os.readlink("/proc/self/fd/903") in given, "socket" in given, os.path.exists("/proc/self/fd/3")]`
    expect((await start().run(code)).result).toBe('[false,false,false]')
  })

  test('a thread that shows something between runs changes nothing', async () => {
    const kernel = start()
    await kernel.run(`import threading
go, over = threading.Event(), threading.Event()
def late(): go.wait(); display("late"); over.set()
threading.Thread(target=late, daemon=True).start()`)
    await kernel.run('threading.Timer(0.02, go.set).start()')
    expect(await kernel.run('over.wait(5); None')).toMatchObject({ done: {} })
  })
})

describe('interrupts', () => {
  test.each([
    ['a loop', 'while True: pass'],
    ['a sleep', 'import time; time.sleep(60)'],
    ['an await', 'import asyncio; await asyncio.sleep(60)'],
    ['a loop that awaits', 'import asyncio\nwhile True: await asyncio.sleep(0)'],
    [
      'a loop in a task',
      'import asyncio\nasync def f():\n  while True: pass\nawait asyncio.create_task(f())',
    ],
    ['asyncio.run', 'import asyncio; asyncio.run(asyncio.sleep(60))'],
    ['a wait for a thread', 'import threading; threading.Event().wait()'],
    ['a child', 'import subprocess; subprocess.run(["sleep", "60"])'],
    ['displays', 'while True: display("x")'],
  ])('%s ends, and what it left is kept', async (_, code) => {
    const kernel = start()
    await kernel.run('kept = 1')
    kernel.send({ code: `display("go")\n${code}` })
    await expect.poll(async () => (await kernel.next()).kind).toBe('display')
    kernel.interrupt()
    const { done } = await kernel.replies()
    expect(done.error?.name).toBe('KeyboardInterrupt')
    expect((await kernel.run('kept')).result).toBe('1')
    expect((await kernel.run('import asyncio\nawait asyncio.sleep(0, 2)')).result).toBe('2')
  })

  test('an idle one does not notice, however often', async () => {
    const kernel = start()
    await kernel.run('1')
    for (let count = 0; count < 20; count++) {
      kernel.interrupt()
      const { done } = await kernel.run('sum(range(1000))')
      expect([undefined, 'KeyboardInterrupt']).toContain(done.error?.name)
    }
    kernel.interrupt()
    await expect.poll(async () => (await kernel.run('1')).result).toBe('1')
  })

  test('code that ignores the first is stopped by the second', async () => {
    const kernel = start()
    kernel.send({
      code: 'try:\n  display("a")\n  while True: pass\nexcept KeyboardInterrupt: display("b")\nwhile True: pass',
    })
    const untilDisplay = () => expect.poll(async () => (await kernel.next()).kind).toBe('display')
    await untilDisplay()
    kernel.interrupt()
    await untilDisplay()
    kernel.interrupt()
    expect((await kernel.replies()).done.error?.name).toBe('KeyboardInterrupt')
  })
})
