import { LineSplitter } from './line-splitter.ts'
import { isObject, mergeUsage, NO_USAGE, type Usage } from './token-usage.ts'

/** Reads the usage out of one response that passes by. It keeps nothing of what it does not need and never throws. */
export interface UsageReader {
  /** Bytes as they came, before any decoding: the proxy asks the API for `accept-encoding: identity`. */
  push(chunk: Buffer): void
  /** What is known now; call it when the response ended or broke off. */
  end(): Usage
}

/** Events that carry usage have about a kilobyte; results of server tools may have far more and are passed over. */
const MAX_LINE_BYTES = 256 * 1024
/** The longest answer of 128 K tokens has less than a megabyte of text; thinking and signatures come on top. */
const MAX_JSON_BYTES = 8 * 1024 * 1024
/** For output nobody counted: about right for prose, too low for dense text. */
const CHARS_PER_TOKEN = 4
const DATA = Buffer.from('data:')
/** Only these are parsed. Named anywhere in the line, as gateways may order fields differently. */
const READ_EVENTS = ['message_start', 'message_delta', 'message_stop', 'content_block_delta'].map((type) =>
  Buffer.from(`"${type}"`),
)

/** A reader for a response of this type, or undefined for one that cannot hold usage that way. */
export function createUsageReader(
  contentType: string | undefined,
  contentEncoding?: string | undefined,
): UsageReader | undefined {
  if (contentEncoding !== undefined && contentEncoding !== 'identity') return undefined
  if (/^text\/event-stream\b/i.test(contentType ?? '')) return new StreamUsageReader()
  if (/^application\/json\b/i.test(contentType ?? '')) return new JsonUsageReader()
  return undefined
}

/** Usage of a stream: `message_start` has the input, `message_delta` the cumulative rest. */
class StreamUsageReader implements UsageReader {
  readonly #lines = new LineSplitter(MAX_LINE_BYTES, (line) => this.#read(line))
  #usage: Usage = NO_USAGE
  #hasInput = false
  #hasOutput = false
  #hasEnded = false
  #outputChars = 0
  #hiddenTokens = 0

  push(chunk: Buffer): void {
    this.#lines.push(chunk)
  }

  end(): Usage {
    this.#lines.end()
    if (this.#hasOutput && this.#hasInput) return { ...this.#usage, isComplete: this.#hasEnded }
    const received = Math.ceil(this.#outputChars / CHARS_PER_TOKEN) + this.#hiddenTokens
    const outputTokens = Math.max(this.#usage.outputTokens, this.#hasOutput ? 0 : received)
    return { ...this.#usage, outputTokens, isEstimated: true }
  }

  #read(line: Buffer): void {
    if (!line.subarray(0, DATA.length).equals(DATA)) return
    if (!READ_EVENTS.some((type) => line.includes(type))) return
    const event = parseObject(line.subarray(DATA.length))
    if (event?.type === 'message_start' && isObject(event.message)) {
      this.#hasInput = isObject(event.message.usage)
      this.#usage = mergeUsage(withModel(this.#usage, event.message.model), event.message.usage)
    } else if (event?.type === 'message_delta') {
      this.#hasOutput ||= isObject(event.usage)
      this.#usage = mergeUsage(this.#usage, event.usage)
    } else if (event?.type === 'message_stop') {
      this.#hasEnded = true
    } else if (event?.type === 'content_block_delta' && isObject(event.delta)) {
      this.#count(event.delta)
    }
  }

  #count({ text, thinking, partial_json, estimated_tokens }: Record<string, unknown>): void {
    for (const part of [text, thinking, partial_json]) {
      if (typeof part === 'string') this.#outputChars += part.length
    }
    // Thinking that is not shown is told by a coarse count instead.
    if (Number.isSafeInteger(estimated_tokens)) this.#hiddenTokens += Math.max(0, Number(estimated_tokens))
  }
}

/** Usage of a response in one piece. */
class JsonUsageReader implements UsageReader {
  #parts: Buffer[] = []
  #bytes = 0

  push(chunk: Buffer): void {
    this.#bytes += chunk.length
    if (this.#bytes > MAX_JSON_BYTES) this.#parts = []
    else this.#parts.push(chunk)
  }

  end(): Usage {
    const body = parseObject(Buffer.concat(this.#parts))
    if (isObject(body?.usage)) {
      return { ...mergeUsage(withModel(NO_USAGE, body.model), body.usage), isComplete: true }
    }
    return { ...NO_USAGE, outputTokens: Math.ceil(this.#bytes / CHARS_PER_TOKEN), isEstimated: true }
  }
}

const withModel = (usage: Usage, model: unknown): Usage =>
  typeof model === 'string' ? { ...usage, model } : usage

function parseObject(bytes: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString())
    return isObject(value) ? value : undefined
  } catch {
    return undefined // Not ours to complain about: the agent's client reads the same bytes.
  }
}
