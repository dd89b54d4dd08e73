import type { PermissionRequest } from '@ash-ai/shared'

export interface PendingPermission {
  request: PermissionRequest
  /** What the bridge calls it. */
  bridgeRequestId: string
  expiry: NodeJS.Timeout
}

/** The requests of a live session that wait for an answer. In memory only: none outlives its turn. */
export class PendingPermissions {
  readonly #waiting = new Map<string, PendingPermission>()

  get size(): number {
    return this.#waiting.size
  }

  list(): PermissionRequest[] {
    return [...this.#waiting.values()].map(({ request }) => request)
  }

  find(requestId: string): PermissionRequest | undefined {
    return this.#waiting.get(requestId)?.request
  }

  add(pending: PendingPermission): void {
    this.#waiting.set(pending.request.requestId, pending)
  }

  /** Takes one out. Whoever gets it, and nobody else, says what became of it. */
  take(requestId: string): PendingPermission | undefined {
    const pending = this.#waiting.get(requestId)
    clearTimeout(pending?.expiry)
    this.#waiting.delete(requestId)
    return pending
  }

  takeOfBridge(bridgeRequestId: string): PendingPermission | undefined {
    const found = [...this.#waiting.values()].find((pending) => pending.bridgeRequestId === bridgeRequestId)
    return found && this.take(found.request.requestId)
  }

  takeAll(): PendingPermission[] {
    return [...this.#waiting.keys()].flatMap((requestId) => this.take(requestId) ?? [])
  }
}
