import { isAshError, type NewSession } from '@ash-ai/shared'
import { createSession } from '../../sessions/session-create.ts'
import { endSession, patchSession } from '../../sessions/session-lifecycle.ts'
import type { SessionRow } from '../../sessions/session-queries.ts'
import { assertTemplate, getTemplateForSession } from '../../templates/template-queries.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { assertIndex, indexHosts } from './dependencies.ts'
import { newExternalId, toNewSession } from './session-mapper.ts'
import { assertFreeId, setExternalId } from './session-queries.ts'
import type { V1SessionCreate } from './session-schemas.ts'
import { SEED_TEMPLATES } from './template-mapper.ts'

/** Makes a session that has a name: the one asked for, or one of the dialect's kind. */
export async function createV1Session(
  { sessions }: DialectDeps,
  tenantId: string,
  request: V1SessionCreate,
): Promise<SessionRow> {
  if (request.id) await assertFreeId(sessions.db, tenantId, request.id)
  assertIndex(sessions.install.indexes, request.python_package_index_url)
  const template = await findTemplate(sessions, tenantId, request.template_id)
  const create = toNewSession(request, template)
  const { row, isNew } = create.packages
    ? await createWithPackages(sessions, tenantId, { ...create, template })
    : await createSession(sessions, tenantId, create)
  if (isNew)
    await setExternalId(sessions.db, row, request.id ?? newExternalId()).catch(async (error: unknown) => {
      await endSession(sessions, tenantId, row.id)
      throw error
    })
  return row
}

type Sessions = DialectDeps['sessions']

/** Its name, or that of the one built in which stands for it. */
async function findTemplate({ db }: Sessions, tenantId: string, id: string): Promise<string> {
  const builtIn = SEED_TEMPLATES[id]
  try {
    await assertTemplate(db, tenantId, id, 'template_id')
    return id
  } catch (error) {
    if (builtIn !== undefined && isAshError(error, 'validation_failed')) return builtIn
    throw error
  }
}

/** The installer reaches the index; what runs afterwards reaches what the template lets it. */
async function createWithPackages(
  sessions: Sessions,
  tenantId: string,
  create: NewSession & { template: string },
) {
  const { settings } = await getTemplateForSession(sessions, tenantId, create.template)
  const network = settings.network ?? 'none'
  if (network !== 'none') return createSession(sessions, tenantId, create)
  const opened = { ...create, network: indexHosts(sessions.install.indexes) }
  const { row, isNew } = await createSession(sessions, tenantId, opened)
  return { row: isNew ? await patchSession(sessions, tenantId, row.id, { network }) : row, isNew }
}
