import { ByteStream } from './byte-stream.ts'
import { Deadline, orConnectionError, sleep } from './deadline.ts'
import { AshReplyError, toReplyError } from './errors.ts'
import { retryDelayMs } from './retry.ts'

export interface HttpOptions {
  baseUrl: string
  apiKey: string | undefined
  timeoutMs: number
  idleTimeoutMs: number
  retries: number
  fetch: typeof globalThis.fetch
}

/** What every call accepts. */
export interface RequestOptions {
  signal?: AbortSignal | undefined
  /** For each attempt of this call; for a stream, until its first byte. */
  timeoutMs?: number | undefined
  retries?: number | undefined
}

export interface HttpRequest extends RequestOptions {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  query?: Record<string, string | number | undefined> | undefined
  /** Sent as JSON. */
  json?: unknown
  /** Sent as it is. */
  bytes?: Uint8Array<ArrayBuffer> | undefined
  /** The same, of any length. It can be sent only once, and the time allowed starts anew with each part. */
  stream?: ReadableStream<Uint8Array> | undefined
  headers?: Record<string, string>
  /** Makes a POST repeatable: the server does it once, however often it comes. */
  idempotencyKey?: string | undefined
}

/** Authorisation, time-outs, retries and typed errors over `fetch`. */
export class Http {
  readonly #options: HttpOptions

  constructor(options: HttpOptions) {
    this.#options = options
  }

  /** The reply's JSON object. `field` must be in it, or something other than Ash has answered. */
  async json<T extends object>(request: HttpRequest, field: keyof T & string): Promise<T> {
    const text = await this.#request(request, (response) => response.text())
    const reply = parseObject(text)
    if (reply === undefined || !Object.hasOwn(reply, field)) {
      throw new AshReplyError(`The reply to ${request.method} ${request.path} is not one of an Ash server`)
    }
    return reply as T
  }

  /** A reply that is any JSON at all. */
  async value(request: HttpRequest): Promise<unknown> {
    const text = await this.#request(request, (response) => response.text())
    try {
      return JSON.parse(text)
    } catch {
      throw new AshReplyError(`The reply to ${request.method} ${request.path} is not JSON`)
    }
  }

  /** For replies whose content says nothing beyond success; may be empty. */
  async done(request: HttpRequest): Promise<void> {
    await this.#request(request, (response) => response.arrayBuffer())
  }

  async bytes(request: HttpRequest): Promise<Uint8Array> {
    return new Uint8Array(await this.#request(request, (response) => response.arrayBuffer()))
  }

  /** Opens a reply that is read as it comes; one that is silent for the idle time-out fails like a lost one. */
  async stream(request: HttpRequest, mediaType = 'text/event-stream'): Promise<ByteStream> {
    const withAccept = { ...request, headers: { ...request.headers, accept: mediaType } }
    return await this.#retrying(withAccept, async () => {
      const deadline = this.#deadline(request)
      try {
        return new ByteStream(
          await this.#fetch(withAccept, deadline),
          mediaType,
          deadline,
          this.#options.idleTimeoutMs,
          this.#options.baseUrl,
        )
      } catch (error) {
        deadline.end()
        throw error
      }
    })
  }

  async #request<T>(request: HttpRequest, read: (response: Response) => Promise<T>): Promise<T> {
    return await this.#retrying(request, async () => {
      const deadline = this.#deadline(request)
      try {
        const response = await this.#fetch(request, deadline)
        return await orConnectionError(read(response), deadline, this.#options.baseUrl)
      } finally {
        deadline.end()
      }
    })
  }

  async #retrying<T>(request: HttpRequest, attempt: () => Promise<T>): Promise<T> {
    const isRepeatable = request.method !== 'POST' || request.idempotencyKey !== undefined
    const retries = request.stream === undefined ? (request.retries ?? this.#options.retries) : 0
    for (let tries = 0; ; tries++) {
      try {
        return await attempt()
      } catch (error) {
        const delayMs = tries < retries ? retryDelayMs(isRepeatable, error, tries) : undefined
        if (delayMs === undefined) throw error
        await sleep(delayMs, request.signal)
      }
    }
  }

  /** A 2xx reply, its body still unread. */
  async #fetch(request: HttpRequest, deadline: Deadline): Promise<Response> {
    const { baseUrl, fetch } = this.#options // Called bare: browsers refuse `fetch` as another object's method.
    const reply = fetch(`${baseUrl}${request.path}${toQuery(request.query)}`, {
      method: request.method,
      headers: this.#headers(request),
      ...toBody(request, deadline),
      signal: deadline.signal,
    })
    const response = await orConnectionError(reply, deadline, baseUrl)
    if (response.ok) return response
    const body = await orConnectionError(response.text(), deadline, baseUrl)
    throw toReplyError(response.status, response.headers, body)
  }

  #deadline(request: HttpRequest): Deadline {
    return new Deadline(request.timeoutMs ?? this.#options.timeoutMs, request.signal)
  }

  #headers(request: HttpRequest): Record<string, string> {
    const { apiKey } = this.#options
    return {
      accept: 'application/json',
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
      ...(request.json !== undefined && { 'content-type': 'application/json' }),
      ...((request.bytes ?? request.stream) !== undefined && { 'content-type': 'application/octet-stream' }),
      ...(request.idempotencyKey !== undefined && { 'idempotency-key': request.idempotencyKey }),
      ...request.headers,
    }
  }
}

function parseObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value : undefined
  } catch {
    return undefined
  }
}

function toBody({ json, bytes, stream }: HttpRequest, deadline: Deadline): RequestInit {
  if (stream === undefined) return { body: json === undefined ? (bytes ?? null) : JSON.stringify(json) }
  const watched = new TransformStream<Uint8Array, Uint8Array>({
    transform: (part, controller) => {
      deadline.extend()
      controller.enqueue(part)
    },
  })
  // Without the signal, a source that is silent at the moment would never be told that nobody wants it any more.
  const body = stream.pipeThrough(watched, { signal: deadline.signal })
  // `fetch` refuses streams without `duplex`, which its types do not know.
  const options: RequestInit & { duplex: 'half' } = { body, duplex: 'half' }
  return options
}

function toQuery(query: HttpRequest['query']): string {
  const given = new URLSearchParams()
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined) given.set(name, String(value))
  }
  return given.size === 0 ? '' : `?${given}`
}
