import { AshError, isAshError, type PackageInstall, type Packages } from '@ash-ai/shared'

/** Of how many sessions the newest installation is remembered. */
const MAX_REMEMBERED = 1_000

/** What an installation found out. */
export type InstallFindings = Pick<PackageInstall, 'warnings' | 'restartKernels'>

/** The newest installation of each session, as this process saw it; one at a time. */
export class PackageInstalls {
  readonly #newest = new Map<string, PackageInstall>()

  find(sessionId: string): PackageInstall | undefined {
    return this.#newest.get(sessionId)
  }

  /** Throws `install_in_progress`. Says what became of the work; `failed` also rejects, with why. */
  begin(
    sessionId: string,
    packages: Packages,
    work: () => Promise<InstallFindings>,
  ): { begun: PackageInstall; ended: Promise<PackageInstall> } {
    if (this.#newest.get(sessionId)?.status === 'running')
      throw new AshError('install_in_progress', `Packages are being installed in session ${sessionId}`)
    const startedAt = new Date().toISOString()
    const begun = { status: 'running' as const, packages, warnings: [], restartKernels: false, startedAt }
    this.#put(sessionId, begun)
    return { begun, ended: this.#watch(sessionId, begun, work) }
  }

  async #watch(
    sessionId: string,
    begun: PackageInstall,
    work: () => Promise<InstallFindings>,
  ): Promise<PackageInstall> {
    try {
      const findings = await work()
      const ended = { ...begun, ...findings, status: 'completed' as const, finishedAt: now() }
      this.#put(sessionId, ended)
      return ended
    } catch (error) {
      this.#put(sessionId, { ...begun, status: 'failed', error: describe(error), finishedAt: now() })
      throw error
    }
  }

  /** The oldest that is over makes room. */
  #put(sessionId: string, install: PackageInstall): void {
    this.#newest.delete(sessionId)
    this.#newest.set(sessionId, install)
    if (this.#newest.size <= MAX_REMEMBERED) return
    const old = [...this.#newest].find(([, { status }]) => status !== 'running')
    if (old) this.#newest.delete(old[0])
  }
}

const now = () => new Date().toISOString()

const describe = (error: unknown) =>
  isAshError(error)
    ? { code: error.code, message: error.message }
    : { code: 'internal_error', message: 'The log of the server has the reason' }
