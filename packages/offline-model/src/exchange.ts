import type { ServerResponse } from 'node:http'
import type { ClientPresence } from './client-presence.ts'
import type { RequestContext } from './request-context.ts'
import type { Step } from './script.ts'

/** One request, the step chosen for it, and the way back to its client. */
export type Exchange = {
  step: Step
  context: RequestContext
  requestId: string
  response: ServerResponse
  client: ClientPresence
}

/** How a reply ended, for the record. */
export type Outcome = 'answered' | 'error' | 'malformed' | 'disconnected' | 'hung' | 'client left'
