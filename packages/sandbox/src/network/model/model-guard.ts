import type { Budget, BudgetRefusal, Reservation } from './budget.ts'
import { checkRemoteFetches, type FetchPolicy } from './remote-fetch.ts'
import { type InspectedRequest, inspectRequest } from './request-inspector.ts'
import { unansweredUsage, unreadableUsage, withPrompt } from './reservation.ts'
import type { Usage } from './token-usage.ts'
import { createUsageReader, type UsageReader } from './usage-meter.ts'

/**
 * An answer in the model API's error shape. Measured with CLI 2.1.325: 402 ends the turn after one request with this
 * text; so does 403, after the CLI's words "Failed to authenticate", and as a web search it only fails that tool;
 * 400 is repeated five times at once; 429 is repeated ten times at most and obeys `retry-after`.
 */
interface GuardRefusal {
  status: 400 | 402 | 403 | 429
  type: 'invalid_request_error' | 'billing_error' | 'permission_error' | 'rate_limit_error'
  message: string
  headers: Record<string, string>
  /** For a network policy that stood in the way: what would have allowed it. */
  setting?: string
}

/** One admitted request on its way. The proxy tells what happens; `end` comes last, whatever happened. */
export interface Exchange {
  /** The response's status and headers. Only now is it known how to read it. */
  onResponse(
    status: number,
    headers: { 'content-type'?: string | undefined; 'content-encoding'?: string | undefined },
  ): void
  onData(chunk: Buffer): void
  /** The request could not be sent. */
  onUnsent(): void
  /** Charges the request, once. Returns its usage for the log; undefined where nothing was charged. */
  end(): Usage | undefined
}

type Admission = { isAdmitted: true; exchange: Exchange } | { isAdmitted: false; refusal: GuardRefusal }

export interface ModelGuard {
  /** Judges a request body. The proxy forwards those very bytes, with `accept-encoding: identity`. */
  admit(body: Buffer, call: 'messages' | 'count_tokens'): Admission
}

/** Retrying sooner would only find the same requests under way. */
const RETRY_AFTER_S = 2

/** Watches over the model requests of one session: what they may make the provider fetch, and what they may cost. */
export function createModelGuard({ budget, policy }: { budget: Budget; policy: FetchPolicy }): ModelGuard {
  return {
    admit(body, call) {
      const request = inspectRequest(body, call)
      if ('malformed' in request) return refused(400, 'invalid_request_error', request.malformed)
      const verdict = checkRemoteFetches(request.remoteFetches, policy)
      if (!verdict.isAllowed) {
        return refused(403, 'permission_error', verdict.reason, { setting: verdict.setting })
      }
      if (call === 'count_tokens') return { isAdmitted: true, exchange: freeExchange } // Costs nothing.
      const reservation = budget.reserve(request)
      if (reservation.isRefused) return refusedByBudget(reservation)
      return { isAdmitted: true, exchange: new MeteredExchange(request, reservation) }
    },
  }
}

class MeteredExchange implements Exchange {
  readonly #request: InspectedRequest
  readonly #reservation: Reservation
  #reader: UsageReader | undefined
  #state: 'sent' | 'answered' | 'free' | 'over' = 'sent'

  constructor(request: InspectedRequest, reservation: Reservation) {
    this.#request = request
    this.#reservation = reservation
  }

  onResponse(status: number, headers: Parameters<Exchange['onResponse']>[1]): void {
    // Errors are not billed.
    this.#state = status >= 200 && status < 300 ? 'answered' : 'free'
    this.#reader = createUsageReader(headers['content-type'], headers['content-encoding'])
  }

  onData(chunk: Buffer): void {
    if (this.#state === 'answered') this.#reader?.push(chunk)
  }

  onUnsent(): void {
    if (this.#state === 'sent') this.#state = 'free'
  }

  end(): Usage | undefined {
    if (this.#state === 'over') return undefined
    const usage = this.#state === 'free' ? undefined : this.#usage()
    this.#state = 'over'
    if (usage === undefined) this.#reservation.release()
    else this.#reservation.settle(usage)
    return usage
  }

  /** An agent that hangs up early must not get the prompt for free: what is not known is estimated. */
  #usage(): Usage {
    if (this.#state === 'sent') return unansweredUsage(this.#request)
    if (this.#reader === undefined) return unreadableUsage(this.#request)
    return withPrompt(this.#reader.end(), this.#request)
  }
}

const freeExchange: Exchange = { onResponse() {}, onData() {}, onUnsent() {}, end: () => undefined }

function refusedByBudget({ code, message }: BudgetRefusal): Admission {
  if (code !== 'no_room_now') return refused(402, 'billing_error', message)
  return refused(429, 'rate_limit_error', message, { headers: { 'retry-after': String(RETRY_AFTER_S) } })
}

function refused(
  status: GuardRefusal['status'],
  type: GuardRefusal['type'],
  message: string,
  more: Partial<GuardRefusal> = {},
): Admission {
  return { isAdmitted: false, refusal: { status, type, message, headers: {}, ...more } }
}
