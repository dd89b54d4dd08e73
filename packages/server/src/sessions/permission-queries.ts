import { PermissionRequest, PermissionResolution } from '@ash-ai/shared'
import { z } from 'zod'
import type { Db } from '../db/open-db.ts'

const Status = z.object({
  requestId: PermissionRequest.shape.requestId,
  status: z.union([PermissionRequest.shape.status, PermissionResolution.shape.status]),
})
type Status = z.infer<typeof Status>['status']

/** What the log says last about a request; undefined where it has none with that id. */
export async function findPermissionStatus(
  db: Db,
  tenantId: string,
  sessionId: string,
  requestId: string,
): Promise<Status | undefined> {
  const row = await db
    .selectFrom('session_events')
    .select('data')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('type', '=', 'permission_request')
    // The id comes first in what is stored, before anything that an agent could have written.
    .where('data', 'like', `{"requestId":"${requestId}"%`)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return row && Status.parse(JSON.parse(row.data)).status
}

/** Requests of a turn about which the log says nothing but that they wait. */
export async function listUnsettledPermissions(
  db: Db,
  tenantId: string,
  sessionId: string,
  turnId: string,
): Promise<string[]> {
  const unsettled = new Set<string>()
  const rows = db
    .selectFrom('session_events')
    .select('data')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('turn_id', '=', turnId)
    .where('type', '=', 'permission_request')
    .orderBy('seq')
  for (const { data } of await rows.execute()) {
    const { requestId, status } = Status.parse(JSON.parse(data))
    if (status === 'pending') unsettled.add(requestId)
    else unsettled.delete(requestId)
  }
  return [...unsettled]
}
