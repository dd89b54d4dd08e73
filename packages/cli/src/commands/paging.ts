import { type Command, InvalidArgumentError } from 'commander'
import type { Output } from '../output.ts'

export interface PagingOptions {
  limit?: number
  cursor?: string
}

export function addPaging(command: Command): Command {
  return command
    .option('--limit <count>', 'at most so many', toLimit)
    .option('--cursor <cursor>', 'go on where an earlier list ended')
}

export function showMore(output: Output, nextCursor: string | undefined): void {
  if (nextCursor !== undefined) output.note(`There are more: add --cursor ${nextCursor}`)
}

export function toLimit(text: string): number {
  const limit = Number(text)
  if (Number.isInteger(limit) && limit > 0) return limit
  throw new InvalidArgumentError('Give a number from 1 on.')
}
