// SPDX-License-Identifier: Apache-2.0

// Package drivers opens buckets of S3, Google Cloud Storage and Azure.
//
// It is a leaf that only the hub's binary imports: the clients of three clouds make every binary that links them larger by a third.
package drivers

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	cloud "gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2/google"

	"ichor.maesh.dev/hub/providers/blob"
)

// All are the drivers, by the scheme of their URLs. With ambient, a bucket that comes without credentials is opened as the hub itself.
func All(ambient bool) map[string]blob.Driver {
	return map[string]blob.Driver{
		"s3":     s3Driver{ambient: ambient},
		"gs":     gcsDriver{ambient: ambient},
		"azblob": azureDriver{ambient: ambient},
	}
}

// errNoCredentials keeps people who may write a TalosCluster from using what the hub itself may.
var errNoCredentials = errors.New("credentials are missing: name a Secret in spec.etcdBackup.credentialsSecretName, or run the hub with --ambient-storage-credentials")

// Keys of the Secrets with credentials. They are the names that the clouds' own tools use.
const (
	accessKeyID     = "AWS_ACCESS_KEY_ID"
	secretAccessKey = "AWS_SECRET_ACCESS_KEY" //nolint:gosec // A name.
	sessionToken    = "AWS_SESSION_TOKEN"     //nolint:gosec // A name.
	certificates    = "ca.crt"

	serviceAccount = "credentials.json"

	azureAccount = "AZURE_STORAGE_ACCOUNT"
	azureKey     = "AZURE_STORAGE_KEY"
	azureToken   = "AZURE_STORAGE_SAS_TOKEN"
)

type s3Driver struct{ ambient bool }

// Parameters implements blob.Driver.
func (s3Driver) Parameters() []string { return []string{"region", "endpoint", "use_path_style"} }

// Open implements blob.Driver.
func (d s3Driver) Open(ctx context.Context, u *url.URL, secret map[string][]byte) (*cloud.Bucket, error) {
	options, err := d.options(u, secret)
	if err != nil {
		return nil, err
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing a client of S3: %w", err)
	}
	client := s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.UsePathStyle = u.Query().Get("use_path_style") == "true"
		if endpoint := u.Query().Get("endpoint"); endpoint != "" {
			o.BaseEndpoint, o.RequestChecksumCalculation = &endpoint, aws.RequestChecksumCalculationWhenRequired
			o.APIOptions = append(o.APIOptions, withoutChecksums)
		}
	})
	return s3blob.OpenBucket(ctx, client, u.Host, nil)
}

// withoutChecksums leaves out the checksums that uploads have behind their data. AWS wants them in buckets with object locks; some other
// servers store them as if they were data. What is stored is read back in any case.
func withoutChecksums(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("WithoutChecksums", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		switch request := in.Parameters.(type) {
		case *s3.PutObjectInput:
			request.ChecksumAlgorithm = ""
		case *s3.CreateMultipartUploadInput:
			request.ChecksumAlgorithm = ""
		case *s3.UploadPartInput:
			request.ChecksumAlgorithm = ""
		}
		return next.HandleInitialize(ctx, in)
	}), middleware.Before)
}

func (d s3Driver) options(u *url.URL, secret map[string][]byte) ([]func(*config.LoadOptions) error, error) {
	options := []func(*config.LoadOptions) error{config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired)}
	if region := u.Query().Get("region"); region != "" {
		options = append(options, config.WithRegion(region))
	}
	id, key := string(secret[accessKeyID]), string(secret[secretAccessKey])
	switch {
	case id != "" && key != "":
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(id, key, string(secret[sessionToken]))),
			config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}))
	case len(secret) > 0:
		return nil, fmt.Errorf("the Secret with credentials has no %s and %s", accessKeyID, secretAccessKey)
	case !d.ambient:
		return nil, errNoCredentials
	}
	if roots := secret[certificates]; len(roots) > 0 {
		if !x509.NewCertPool().AppendCertsFromPEM(roots) {
			return nil, fmt.Errorf("%s of the Secret with credentials holds no certificate in PEM", certificates)
		}
		options = append(options, config.WithCustomCABundle(bytes.NewReader(roots)))
	}
	return options, nil
}

type gcsDriver struct{ ambient bool }

// Parameters implements blob.Driver.
func (gcsDriver) Parameters() []string { return nil }

// scope is what a bucket is used for.
const scope = "https://www.googleapis.com/auth/devstorage.read_write"

// Open implements blob.Driver.
func (d gcsDriver) Open(ctx context.Context, u *url.URL, secret map[string][]byte) (*cloud.Bucket, error) {
	found, err := d.credentials(ctx, secret)
	if err != nil {
		return nil, err
	}
	client, err := gcp.NewHTTPClient(gcp.DefaultTransport(), gcp.CredentialsTokenSource(found))
	if err != nil {
		return nil, fmt.Errorf("preparing a client of Google Cloud Storage: %w", err)
	}
	return gcsblob.OpenBucket(ctx, client, u.Host, nil)
}

func (d gcsDriver) credentials(ctx context.Context, secret map[string][]byte) (*google.Credentials, error) {
	switch data := secret[serviceAccount]; {
	case len(data) > 0: // Any other kind of credentials may name a program to run, or an address to ask.
		found, err := google.CredentialsFromJSONWithType(ctx, data, google.ServiceAccount, scope)
		if err != nil {
			return nil, fmt.Errorf("reading %s of the Secret with credentials: want the key of a service account", serviceAccount)
		}
		return found, nil
	case len(secret) > 0:
		return nil, fmt.Errorf("the Secret with credentials has no %s", serviceAccount)
	case !d.ambient:
		return nil, errNoCredentials
	}
	return google.FindDefaultCredentials(ctx, scope)
}

type azureDriver struct{ ambient bool }

// Parameters implements blob.Driver.
func (azureDriver) Parameters() []string { return []string{"account", "domain"} }

// Open implements blob.Driver.
func (d azureDriver) Open(ctx context.Context, u *url.URL, secret map[string][]byte) (*cloud.Bucket, error) {
	account, key, token := string(secret[azureAccount]), string(secret[azureKey]), string(secret[azureToken])
	if account == "" {
		account = u.Query().Get("account")
	}
	service, err := azureblob.NewServiceURL(&azureblob.ServiceURLOptions{AccountName: account, SASToken: token, StorageDomain: u.Query().Get("domain")})
	if err != nil {
		return nil, fmt.Errorf("the Secret with credentials has no %s", azureAccount)
	}
	client, err := d.client(containerURL(string(service), u.Host), account, key, token)
	if err != nil {
		return nil, err
	}
	return azureblob.OpenBucket(ctx, client, nil)
}

// containerURL names a container of a service, before the token if there is one.
func containerURL(service, name string) string {
	u, err := url.Parse(service)
	if err != nil {
		return service
	}
	return u.JoinPath(name).String()
}

func (d azureDriver) client(at, account, key, token string) (*container.Client, error) {
	switch {
	case token != "":
		return container.NewClientWithNoCredential(at, nil)
	case key != "":
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, fmt.Errorf("%s of the Secret with credentials is no key in base64", azureKey)
		}
		return container.NewClientWithSharedKeyCredential(at, shared, nil)
	case !d.ambient:
		return nil, errNoCredentials
	}
	own, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("looking for the hub's own credentials: %w", err)
	}
	return container.NewClient(at, own, nil)
}
