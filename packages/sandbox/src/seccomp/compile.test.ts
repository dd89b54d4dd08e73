import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ARCHITECTURES, type Architecture, compileFilter } from './compile.ts'
import { POLICY } from './policy.ts'
import { numbersOf } from './syscall-table.ts'

const ALLOW = 0x7fff0000
const KILL = 0x80000000
const ENOSYS = 0x00050026
const EPERM = 0x00050001

/** Runs a filter as the kernel would: an independent reading of the bytes. */
function run(filter: Buffer, call: { arch: number; number: number; args?: number[] }): number {
  const data = Buffer.alloc(64)
  data.writeUInt32LE(call.number >>> 0, 0)
  data.writeUInt32LE(call.arch, 4)
  for (const [index, value] of (call.args ?? []).entries()) data.writeUInt32LE(value >>> 0, 16 + 8 * index)
  let a = 0
  for (let pc = 0; pc < filter.length / 8; pc++) {
    const [code, jt, jf, k] = [
      filter.readUInt16LE(pc * 8),
      filter[pc * 8 + 2] ?? 0,
      filter[pc * 8 + 3] ?? 0,
      filter.readUInt32LE(pc * 8 + 4),
    ]
    if (code === 0x20) a = data.readUInt32LE(k)
    else if (code === 0x15) pc += a === k ? jt : jf
    else if (code === 0x35) pc += a >= k ? jt : jf
    else if (code === 0x45) pc += (a & k) !== 0 ? jt : jf
    else if (code === 0x05) pc += k
    else if (code === 0x06) return k
    else throw new Error(`unknown instruction ${code}`)
  }
  throw new Error('the program ran off its end')
}

describe.each(Object.entries(ARCHITECTURES))('the filter for %s', (_name, architecture: Architecture) => {
  const filter = compileFilter(POLICY, architecture)
  const numbers = numbersOf(architecture.table)
  const names = new Map([...numbers].map(([name, number]) => [number, name]))
  const decide = (number: number, args: number[] = []) =>
    run(filter, { arch: architecture.audit, number, args })
  const byName = (name: string, ...args: number[]) => decide(numbers.get(name) ?? -1, args)

  test('every number gets the decision that the policy names for it', () => {
    for (let number = 0; number < 600; number++) {
      const name = names.get(number)
      if (name !== undefined && name in POLICY.checked) continue
      const expected =
        name === undefined || POLICY.missing.includes(name)
          ? ENOSYS
          : POLICY.refused.includes(name)
            ? EPERM
            : ALLOW
      expect([number, name, decide(number)]).toEqual([number, name, expected])
    }
  })

  test('a number beyond the table does not exist, those of x32 among them', () => {
    fc.assert(fc.property(fc.integer({ min: 600, max: 2 ** 32 - 1 }), (number) => decide(number) === ENOSYS))
  })

  test('a call of another architecture kills', () => {
    for (const arch of [0x40000003, 0, 0xffffffff]) expect(run(filter, { arch, number: 0 })).toBe(KILL)
  })

  test('threads and processes can be made, namespaces cannot', () => {
    const thread = 0x003d0f00
    expect(byName('clone', thread)).toBe(ALLOW)
    expect(byName('clone', 17)).toBe(ALLOW)
    for (const bit of [
      0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x80,
    ]) {
      expect(byName('clone', 17 | bit)).toBe(EPERM)
    }
    expect(byName('clone3')).toBe(ENOSYS)
  })

  test('only the usual sockets can be opened', () => {
    for (const domain of [1, 2, 10, 16]) expect(byName('socket', domain)).toBe(ALLOW)
    for (const domain of [0, 3, 17, 38, 40, 44]) expect(byName('socket', domain)).toBe(EPERM)
  })

  test('nobody types into a terminal', () => {
    expect(byName('ioctl', 0, 0x5412)).toBe(EPERM)
    expect(byName('ioctl', 0, 0x541c)).toBe(EPERM)
    expect(byName('ioctl', 0, 0x5413)).toBe(ALLOW)
  })

  test('it fits into what the kernel takes', () => {
    expect(filter.length / 8).toBeLessThan(4096)
  })
})

test('every name in the policy is a system call of one of the architectures', () => {
  const known = new Set(Object.values(ARCHITECTURES).flatMap(({ table }) => [...numbersOf(table).keys()]))
  const named = [...POLICY.missing, ...POLICY.refused, ...Object.keys(POLICY.checked)]
  expect(named.filter((name) => !known.has(name))).toEqual([])
  expect(new Set(named).size).toBe(named.length)
})
