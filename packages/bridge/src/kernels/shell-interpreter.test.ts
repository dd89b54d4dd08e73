import { shellInput } from '@ash-ai/shared'
import { expect, onTestFinished, test } from 'vitest'
import { KernelProcess } from './testing/kernel-process.ts'

async function run(code: string, env?: Record<string, string>, bash?: string) {
  const shell = new KernelProcess('shell', bash === undefined ? {} : { bash })
  onTestFinished(() => shell.stop())
  shell.end(shellInput({ code, ...(env && { env }) }))
  const [exitCode, signal] = await shell.exited
  return { exitCode, signal, stdout: shell.stdout, stderr: shell.stderr }
}

test.each([
  ['output', 'echo a; echo b >&2', 0, 'a\n'],
  ['an exit code', 'exit 7', 7, ''],
  ['the code of the last command', 'true; false', 1, ''],
  ['set -e', 'set -e\nfalse\necho no', 1, ''],
  ['a heredoc', 'cat <<EOF\n$((1 + 1))\nEOF', 0, '2\n'],
  ['functions', 'f() { echo "f $1"; }\nf x', 0, 'f x\n'],
  ['a trap', "trap 'echo bye' EXIT\nexit 3", 3, 'bye\n'],
  ['exec', 'exec sh -c "exit 4"', 4, ''],
  ['background', 'sleep 0.01 & wait; echo ok', 0, 'ok\n'],
  ['empty input', 'cat; read x; echo end', 0, 'end\n'],
  ['a comment first', '# nothing\necho a', 0, 'a\n'],
  ['no arguments', 'echo "$#[$*]"', 0, '0[]\n'],
  ['a syntax error', 'if then', 2, ''],
  ['no channel', 'ls /proc/self/fd | grep -c "^3$" >&2; (echo x >&3) 2>/dev/null; echo $?', 0, '1\n'],
])('%s', async (_, code, exitCode, stdout) => {
  expect(await run(code)).toMatchObject({ exitCode, signal: null, stdout })
})

test('variables with quotes and line breaks arrive as they are', async () => {
  const value = `a'b"c$d\`e\\f\ng`
  expect(await run('printf %s "$V"; printf %s "$W"', { V: value, W: '2' })).toMatchObject({
    stdout: `${value}2`,
  })
})

test('a script of a megabyte runs', async () => {
  const code = `${': nothing\n'.repeat(110_000)}echo end`
  expect(await run(code)).toMatchObject({ exitCode: 0, stdout: 'end\n' })
})

test('without bash the plain shell does the same', async () => {
  const code = 'set -e\nf() { cat <<EOF\n$1 $V $#\nEOF\n}\nf x\ncat\nexit 5'
  expect(await run(code, { V: "it's" }, '/bin/sh')).toMatchObject({ exitCode: 5, stdout: "x it's 1\n" })
})
