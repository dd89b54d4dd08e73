import { readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { aboutFile, CheckpointFault } from './checkpoint-fault.ts'

test('a disk without room is told as that, with the file', () => {
  const writing = () => aboutFile('a/\xc3\xbc.txt', () => writeFileSync('/dev/full', 'text'))
  expect(writing).toThrow(
    expect.objectContaining({ code: 'disk_full', message: expect.stringContaining('"a/ü.txt"') }),
  )
})

test('an error of the system names the file of the workspace and no path of the host', () => {
  const reading = () => aboutFile('file', () => readFileSync('/missing/on/the/host'))
  const message = '"file": ENOENT: no such file or directory'
  expect(reading).toThrow(expect.objectContaining({ code: 'checkpoint_failed', message }))
})

test('what is told already stays as it is', () => {
  const fault = new CheckpointFault('checkpoint_damaged', 'inner')
  const failing = () =>
    aboutFile('outer', () => {
      throw fault
    })
  expect(failing).toThrow(fault)
})
