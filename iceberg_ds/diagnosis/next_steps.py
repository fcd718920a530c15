"""Pure: what to look at for each cause, with the very property, right or package to look at.

Properties are named as catalogs have them: as options they stand below `catalog.`, such as `catalog.s3.endpoint`.
"""

from __future__ import annotations

from iceberg_ds.diagnosis.causes import Cause, Service

# How the address of each service is set.
_ADDRESS = {
    Service.REST: "'uri' (and 'oauth2-server-uri', if it is set)",
    Service.HIVE: "'uri' (thrift://host:9083)",
    Service.SQL: "'uri' (as in postgresql+psycopg2://user@host:5432/database)",
    Service.GLUE: "'glue.endpoint' and 'glue.region'",
    Service.STS: "'client.assume-role.region', and AWS_ENDPOINT_URL_STS in the environment",
    Service.S3: "'s3.endpoint' (for Amazon's own S3 leave it out) and 's3.region'",
    Service.GCS: "'gcs.service.host'",
    Service.AZURE: "'adls.account-name' and 'adls.account-host'",
}
# What says who is asking.
_CREDENTIALS = {
    Service.REST: "'token', or 'credential' (client-id:client-secret) with 'scope' and 'oauth2-server-uri'",
    Service.HIVE: "the Kerberos ticket, or user and password in 'uri'",
    Service.SQL: "user and password in 'uri'",
    Service.GLUE: "'glue.access-key-id', 'glue.secret-access-key' and 'glue.session-token', or 'glue.profile-name'",
    Service.STS: "the credentials that assume the role: 'client.access-key-id' and 'client.secret-access-key', or "
    "those of the environment",
    Service.S3: "'s3.access-key-id', 's3.secret-access-key' and 's3.session-token', or 's3.profile-name'",
    Service.GCS: "'gcs.oauth2.token', or the default credentials of the machine (GOOGLE_APPLICATION_CREDENTIALS)",
    Service.AZURE: "'adls.account-key', 'adls.sas-token' or 'adls.client-id' with 'adls.client-secret' and "
    "'adls.tenant-id'",
}
# What a principal has to be allowed.
_RIGHTS = {
    Service.REST: "Let the catalog's administrator grant the principal to list and load the table, to commit to it and "
    "to create tables in the namespace; check 'scope' and 'warehouse'.",
    Service.HIVE: "Let the Hive Metastore allow the user to read and alter the table and to create tables in the "
    "database.",
    Service.SQL: "Grant the database user SELECT, INSERT, UPDATE and DELETE on iceberg_tables and "
    "iceberg_namespace_properties, and CREATE for the first start; a database that knows only some machines must know "
    "this one.",
    Service.GLUE: "Allow glue:GetDatabase, glue:GetTable, glue:CreateTable, glue:UpdateTable (and glue:CreateDatabase) "
    "on the catalog, the database and the table, and where Lake Formation guards them, there too; check "
    "'glue.id'.",
    Service.STS: "Allow sts:AssumeRole on the role of 'client.assume-role.arn', and let its trust policy name these "
    "credentials and the id of 'client.assume-role.external-id'.",
    Service.S3: "Allow s3:PutObject, s3:GetObject, s3:DeleteObject and s3:AbortMultipartUpload on the table's location "
    "(docs/storage.md has a policy). A store that answers 403 without a word may also "
    "mean a wrong 's3.access-key-id' or 's3.secret-access-key'.",
    Service.GCS: "Grant the role Storage Object User (storage.objects.create, get, list, delete) on the bucket.",
    Service.AZURE: "Grant the role Storage Blob Data Contributor on the container.",
    Service.FILES: "Let the user that Spark runs as write in that folder.",
}
_PACKAGES = {
    Service.REST: "'iceberg-ds[sigv4]' if the catalog wants signed requests",
    Service.HIVE: "'iceberg-ds[hive]'",
    Service.SQL: "'iceberg-ds[postgres]', or the driver that 'uri' names",
    Service.GLUE: "'iceberg-ds[glue]'",
    Service.GCS: "'iceberg-ds[gcs]'",
    Service.AZURE: "'iceberg-ds[azure]'",
}
_TIME_OUTS = {
    Service.REST: " 'rest.client.connection-timeout-ms' and 'rest.client.socket-timeout-ms' say how long to wait.",
    Service.S3: " 's3.connect-timeout' and 's3.request-timeout' say how long to wait.",
    Service.SQL: " 'uri' may end with ?connect_timeout=10.",
}
_TLS = {
    Service.REST: "name the file of the authority that signed the certificate in 'ssl.cabundle', or in "
    "REQUESTS_CA_BUNDLE in the environment",
    Service.S3: "name the file of the authority that signed the certificate in AWS_CA_BUNDLE in the environment of the "
    "driver and of every executor",
    Service.GLUE: "name the file of the authority that signed the certificate in AWS_CA_BUNDLE in the environment",
    Service.SQL: "name the file of the authority in 'uri', as in ?sslmode=verify-full&sslrootcert=/path/ca.pem",
}
_OF_ONE_SERVICE = {
    (Cause.WRONG_REGION, Service.S3): "Set 's3.region' to the bucket's region, and leave out 's3.endpoint', or name "
    "that region's.",
    (Cause.WRONG_REGION, Service.GLUE): "Set 'glue.region' to the region of the catalog.",
    (Cause.REFUSED, Service.REST): "Read what the catalog says; if it says nothing, check 'uri', 'warehouse' and the "
    "table's identifier.",
}
_SETTINGS = {
    Service.GLUE: "Set 'glue.region' (or AWS_REGION in the environment), and check 'glue.profile-name'.",
    Service.S3: "Set 's3.region' (or AWS_REGION in the environment), and check 's3.profile-name' and the form of "
    "'s3.endpoint' (http://host:port).",
}
# What to do whatever the service; {service}, {address} and {credentials} are filled in.
_STEPS = {
    Cause.UNKNOWN_HOST: "Check the spelling of the host in {address}, and that this machine's name service knows it.",
    Cause.UNREACHABLE: "Check host and port in {address}, that {service} runs, and that no firewall or proxy is "
    "between.",
    Cause.TIMED_OUT: "Check host and port in {address}, and whether a firewall swallows the connection or {service} is "
    "overloaded.",
    Cause.NOT_THIS_SERVICE: "Check {address}: path, port, and http or https are those of another service.",
    Cause.NO_CREDENTIALS: "Give {credentials}; without them the environment, profiles and the machine's own role are "
    "asked, and have none.",
    Cause.UNAUTHORIZED: "Check {credentials}: the key or the secret is wrong, or was revoked.",
    Cause.EXPIRED_CREDENTIALS: "Get new ones and give {credentials}. For jobs that outlive them use credentials that "
    "renew themselves: a profile, a role, or a catalog that vends them.",
    Cause.CLOCK_SKEW: "Set the clock of the machine that failed (with NTP): signed requests may differ from "
    "{service}'s clock by a few minutes.",
    Cause.WRONG_REGION: "Set the region that the service's answer names.",
    Cause.NO_SUCH_BUCKET: "Create it, or correct its name in 'warehouse', in option 'location' or in the table's "
    "location; {address} must be of the store that has it.",
    Cause.NO_SUCH_WAREHOUSE: "Check 'warehouse': it must be a name that this catalog knows, or be left out.",
    Cause.NO_SUCH_DATABASE: "Create the database, or correct its name in {address}; the folder of an SQLite file must "
    "exist.",
    Cause.NO_SUCH_NAMESPACE: "Create the namespace, or correct the table's identifier; with create-table=true a write "
    "creates it.",
    Cause.NO_SUCH_TABLE: "Create the table, or correct its identifier; with create-table=true a write creates it.",
    Cause.NO_SUCH_FILE: "Check that the file was not deleted, and that {address} is of the store that has it.",
    Cause.ENCRYPTION_KEY: "Allow kms:GenerateDataKey and kms:Decrypt on the key of 's3.sse.key' (or of the bucket's "
    "default encryption), and check that it is enabled and in the bucket's region.",
    Cause.REFUSED: "Credentials that have expired and a wrong region often look like that: check {credentials}, and "
    "{address}.",
    Cause.THROTTLED: "Write fewer files (fewer tasks, iceberg_ds.distribute), or ask for a higher limit; then try "
    "again.",
    Cause.LOCKED: "Find out who holds the lock; with Hive see 'lock-check-min-wait-time' and 'lock-check-retries'.",
    Cause.SERVICE_FAILED: "Look into the log of {service}, and try again.",
    Cause.DISK_FULL: "Free space there, or point 'warehouse' or spark.local.dir to another disk.",
    Cause.READ_ONLY: "Make it writable for the user that Spark runs as, or name another place.",
}
_TO_CHECK = "Check that {service} runs, that {address} is right and that you may use it."
_ANY_ADDRESS = "its address"
_ANY_CREDENTIALS = "its credentials"


def next_step(cause: Cause, service: Service) -> str:
    """Return one or two sentences that say what to look at."""
    return (
        _OF_ONE_SERVICE.get((cause, service))
        or _special(cause, service)
        or _STEPS.get(cause, _TO_CHECK).format(
            service=service.value,
            address=_ADDRESS.get(service, _ANY_ADDRESS),
            credentials=_CREDENTIALS.get(service, _ANY_CREDENTIALS),
        )
        + (_TIME_OUTS.get(service, "") if cause is Cause.TIMED_OUT else "")
    )


def _special(cause: Cause, service: Service) -> str | None:
    """Return what to do where that differs from service to service as a whole, None where it does not."""
    if cause is Cause.FORBIDDEN:
        return _RIGHTS.get(service, "Let the service's administrator grant the right.")
    if cause is Cause.TLS:
        trust = _TLS.get(service, "let this machine trust the authority that signed the certificate")
        address = _ADDRESS.get(service, _ANY_ADDRESS)
        return f"If the service has a private certificate authority, {trust}. Check http or https in {address}."
    if cause is Cause.MISSING_PACKAGE:
        return f"Install {_PACKAGES.get(service, 'the package that is named')} on the driver and on every executor."
    if cause is not Cause.CONFIGURATION:
        return None
    return _SETTINGS.get(service, f"Check {_ADDRESS.get(service, 'the setting that is named')}.")
