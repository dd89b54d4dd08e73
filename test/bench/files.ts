import { listing } from './files/listing.ts'
import { transfer } from './files/transfer.ts'
import { runParts } from './support/run-parts.ts'

const PARTS = { listing, transfer }

/** What it takes to see the files of a session, and to move large ones. */
export async function files(names: string[]): Promise<string[]> {
  return [INTRODUCTION, ...(await runParts('files', PARTS, names))]
}

const INTRODUCTION =
  'Ash runs whole: HTTP, keys, SQLite, sandbox, disk image. Floors run in the same turns, on the same machine.'
