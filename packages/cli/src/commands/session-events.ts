import { EVENT_TYPES, type EventType } from '@ash-ai/sdk'
import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { dim } from '../output.ts'
import { toSafeLine } from '../terminal-text.ts'
import { addPaging, type PagingOptions, showMore } from './paging.ts'

const MAX_SUMMARY_CHARS = 100

type EventsOptions = PagingOptions & { type?: EventType[]; turn?: string; follow?: boolean }

export function addEvents(session: Command, run: Run): void {
  addPaging(
    addCommand(session, 'events <id>', 'Show the log of a session: everything that happened in it.', [
      'ash session events $id',
      'ash session events $id --type error --type limit',
      'ash session events $id --follow --json',
    ])
      .option('--type <type>', `only these: ${EVENT_TYPES.join(', ')}; repeatable`, toTypes)
      .option('--turn <id>', 'only of this turn')
      .option('-f, --follow', 'go on as the log grows, until the session ends'),
  ).action(run(events))
}

async function events(context: Context, id: string, options: EventsOptions): Promise<void> {
  if (options.follow) return follow(context, id, options)
  const { client, output, signal } = context
  const { type: types, turn: turnId, limit, cursor } = options
  const page = await client.sessions.events(id, { types, turnId, limit, cursor, signal })
  if (output.isJson) return output.event(page)
  for (const { seq, type, data } of page.events) show(context, String(seq), type, data)
  showMore(output, page.nextCursor)
}

async function follow(context: Context, id: string, options: EventsOptions): Promise<void> {
  if (options.turn !== undefined || options.limit !== undefined || options.cursor !== undefined)
    throw new CliError(
      EXIT.usage,
      '--follow shows the whole log',
      'Use it without --turn, --limit and --cursor',
    )
  for await (const event of context.client.sessions.follow(id, { signal: context.signal })) {
    const type = event.type === 'unknown' ? event.event : event.type
    if (options.type && !options.type.some((wanted) => wanted === type)) continue
    if (context.output.isJson) context.output.event(event)
    else show(context, event.id, type, contentOf(event))
  }
}

function contentOf({ id: _, type: __, ...rest }: { id: string; type: string }): unknown {
  const { message, data, checkpoint } = rest as { message?: unknown; data?: unknown; checkpoint?: unknown }
  return message ?? data ?? checkpoint ?? rest
}

function show({ output }: Context, place: string, type: string, data: unknown): void {
  const text = toSafeLine(JSON.stringify(data))
  const summary = text.length > MAX_SUMMARY_CHARS ? `${text.slice(0, MAX_SUMMARY_CHARS)}…` : text
  output.line(dim(place.padStart(6)), `  ${type.padEnd(18)}  ${summary}`)
}

function toTypes(text: string, before: EventType[] = []): EventType[] {
  const type = EVENT_TYPES.find((known) => known === text)
  if (type === undefined) throw new InvalidArgumentError(`Give one of ${EVENT_TYPES.join(', ')}.`)
  return [...before, type]
}
