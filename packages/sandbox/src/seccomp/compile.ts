import type { ArgumentCheck, SeccompPolicy } from './policy.ts'
import { numbersOf, rangesOf, type SyscallTable } from './syscall-table.ts'
import { SYSCALLS_ARM64 } from './syscalls-arm64.ts'
import { SYSCALLS_X64 } from './syscalls-x64.ts'

export interface Architecture {
  /** AUDIT_ARCH of the kernel. */
  audit: number
  table: SyscallTable
}

export const ARCHITECTURES: Record<string, Architecture> = {
  x64: { audit: 0xc000_003e, table: SYSCALLS_X64 },
  arm64: { audit: 0xc000_00b7, table: SYSCALLS_ARM64 },
}

const ENOSYS = 38
const EPERM = 1
const ALLOW = 0x7fff_0000
const KILL_PROCESS = 0x8000_0000
const errno = (number: number) => 0x0005_0000 | number

// struct seccomp_data: number, architecture, instruction pointer, six arguments of 64 bits, little-endian.
const NUMBER = 0
const ARCH = 4
const argumentLow = (index: number) => 16 + 8 * index

// Classic BPF: load a word, compare, return.
const LOAD = 0x20
const JUMP_EQUAL = 0x15
const JUMP_GREATER_OR_EQUAL = 0x35
const JUMP_SET = 0x45
const RETURN = 0x06

interface Instruction {
  code: number
  jumpTrue: number
  jumpFalse: number
  k: number
}

/**
 * The policy as a filter program for this architecture, in the bytes `bwrap --seccomp` reads. A call under
 * another architecture's numbers kills the process: no program here makes one by accident.
 */
export function compileFilter(policy: SeccompPolicy, { audit, table }: Architecture): Buffer {
  const numbers = numbersOf(table)
  const program: Instruction[] = [
    load(ARCH),
    skipUnless(JUMP_EQUAL, audit, 0, 1),
    jumpOver(1),
    returns(KILL_PROCESS),
    load(NUMBER),
    ...unknownCalls(table),
    ...policy.missing.flatMap((name) => onCall(numbers, name, [returns(errno(ENOSYS))])),
    ...policy.refused.flatMap((name) => onCall(numbers, name, [returns(errno(EPERM))])),
    ...Object.entries(policy.checked).flatMap(([name, check]) => onCall(numbers, name, argumentRule(check))),
    returns(ALLOW),
  ]
  return encode(program)
}

/** Numbers between and beyond the known runs, those of the x32 variant among them. */
function unknownCalls(table: SyscallTable): Instruction[] {
  const ranges = rangesOf(table)
  return ranges.flatMap(({ last }, index) => {
    const next = ranges[index + 1]?.first
    const gap = [returns(errno(ENOSYS))]
    // number > last, and below the next run if there is one: unknown.
    if (next === undefined) return [skipUnless(JUMP_GREATER_OR_EQUAL, last + 1, 0, 1), ...gap]
    return [
      skipUnless(JUMP_GREATER_OR_EQUAL, last + 1, 0, 2),
      skipUnless(JUMP_GREATER_OR_EQUAL, next, 1, 0),
      ...gap,
    ]
  })
}

/** Nothing for a call that this architecture does not have. */
function onCall(numbers: Map<string, number>, name: string, then: Instruction[]): Instruction[] {
  const number = numbers.get(name)
  return number === undefined ? [] : [skipUnless(JUMP_EQUAL, number, 0, then.length), ...then]
}

function argumentRule(check: ArgumentCheck): Instruction[] {
  const refuse = returns(errno(EPERM))
  const allow = returns(ALLOW)
  const start = load(argumentLow(check.argument))
  if ('refuseAnyOf' in check) return [start, skipUnless(JUMP_SET, check.refuseAnyOf, 0, 1), refuse, allow]
  const values = 'refuseEqual' in check ? check.refuseEqual : check.allowEqual
  const [match, otherwise] = 'refuseEqual' in check ? [refuse, allow] : [allow, refuse]
  return [start, ...values.flatMap((value) => [skipUnless(JUMP_EQUAL, value, 0, 1), match]), otherwise]
}

const load = (offset: number): Instruction => ({ code: LOAD, jumpTrue: 0, jumpFalse: 0, k: offset })
const returns = (value: number): Instruction => ({ code: RETURN, jumpTrue: 0, jumpFalse: 0, k: value })
const skipUnless = (code: number, k: number, jumpTrue: number, jumpFalse: number): Instruction => ({
  code,
  jumpTrue,
  jumpFalse,
  k,
})
const jumpOver = (count: number): Instruction => ({ code: 0x05, jumpTrue: 0, jumpFalse: 0, k: count })

const INSTRUCTION_BYTES = 8

function encode(program: Instruction[]): Buffer {
  const bytes = Buffer.alloc(program.length * INSTRUCTION_BYTES)
  for (const [index, { code, jumpTrue, jumpFalse, k }] of program.entries()) {
    const offset = index * INSTRUCTION_BYTES
    bytes.writeUInt16LE(code, offset)
    bytes.writeUInt8(jumpTrue, offset + 2)
    bytes.writeUInt8(jumpFalse, offset + 3)
    bytes.writeUInt32LE(k >>> 0, offset + 4)
  }
  return bytes
}
