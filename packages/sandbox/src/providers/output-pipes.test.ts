import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import { spawnWithOutput } from './output-pipes.ts'

const start = (program: string, args: string[]) =>
  spawnWithOutput((...output) => ({ child: spawn(program, args, { stdio: ['ignore', ...output] }) }))

async function run(code: string) {
  const { stdout, stderr } = await start('/bin/sh', ['-c', code])
  const texts = { stdout: '', stderr: '' }
  stdout.on('data', (chunk: Buffer) => {
    texts.stdout += chunk
  })
  stderr.on('data', (chunk: Buffer) => {
    texts.stderr += chunk
  })
  await Promise.all([once(stdout, 'close'), once(stderr, 'close')])
  return texts
}

const countFds = () => readdirSync('/proc/self/fd').length

test('what a program writes to its outputs by name arrives', async () => {
  const code = 'echo a > /dev/stdout; echo b > /dev/stderr; echo c | tee -a /dev/stderr'
  expect(await run(code)).toEqual({ stdout: 'a\nc\n', stderr: 'b\nc\n' })
})

test('megabytes arrive whole, and the end after the last writer', async () => {
  const { stdout } = await run('(sleep 0.05; echo end) & head -c 3000000 /dev/zero')
  expect(stdout.length).toBe(3_000_004)
  expect(stdout.endsWith('end\n')).toBe(true)
})

test('the outputs of two do not meet, also where many start at once', async () => {
  const texts = await Promise.all(Array.from({ length: 40 }, (_, index) => run(`echo ${index}`)))
  expect(texts.map(({ stdout }) => stdout)).toEqual(texts.map((_, index) => `${index}\n`))
})

test('a program that is not there leaves nothing open', async () => {
  const { child, stdout, stderr } = await start('/nonexistent', [])
  await once(child, 'error')
  expect([stdout.destroyed, stderr.destroyed]).toEqual([true, true])
  await expect(
    spawnWithOutput(() => {
      throw new Error('refused')
    }),
  ).rejects.toThrow('refused')
})

test('200 starts leave no descriptor open', async () => {
  await run('true')
  const most = countFds() + 64
  for (let round = 0; round < 20; round++) await Promise.all(Array.from({ length: 10 }, () => run('true')))
  await expect.poll(countFds).toBeLessThanOrEqual(most)
})
